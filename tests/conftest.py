"""For all tests: property tests judge behaviour, never the speed of the machine."""

from __future__ import annotations

import os
import signal
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

# What runs in the background or under nohup inherits signals that are ignored, and hands them on to the
# commands that it starts: a test's Ctrl-C would end nothing.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


@pytest.fixture(scope="session", autouse=True)
def state_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Servers of the tests are none that this user's `trtbuild stop` finds, and the other way round."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRTBUILD_STATE", str(tmp_path_factory.mktemp("state")))
        yield
