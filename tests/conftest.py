"""For all tests: property tests judge behaviour, never the speed of the machine."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "trtbuild",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=bool(os.environ.get("CI")),  # a landing does not depend on the luck of a draw
)
settings.load_profile("trtbuild")
