"""For all tests: property tests judge behaviour, never the speed of the machine."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "trtbuild",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=bool(os.environ.get("CI")),  # a landing does not depend on the luck of a draw
)
settings.load_profile("trtbuild")


@pytest.fixture(scope="session", autouse=True)
def state_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Servers of the tests are none that this user's `trtbuild stop` finds, and the other way round."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRTBUILD_STATE", str(tmp_path_factory.mktemp("state")))
        yield
