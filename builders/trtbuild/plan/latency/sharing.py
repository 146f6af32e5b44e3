"""Vision models on the same GPU: their kernels and the language model's take turns.

While a picture is worked on, each of the two gets half of the GPU's time (time slices, no priority). So the
language model's clock runs at half speed then: it is simulated on a clock of its own, and its times are
translated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trtbuild.errors import PlanError

_SHARES = 2  # language model and pictures


@dataclass(frozen=True)
class SharedClock:
    """Wall time beside the language model's own time, as corners of a line; and the pictures' latencies."""

    wall_s: NDArray[np.float64]
    own_s: NDArray[np.float64]
    picture_latency_s: NDArray[np.float64]

    def to_own(self, wall_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Time of the language model's clock at times of the wall's."""
        return _along(wall_s, self.wall_s, self.own_s)

    def to_wall(self, own_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """The reverse."""
        return _along(own_s, self.own_s, self.wall_s)


def _along(
    times_s: NDArray[np.float64], corners_s: NDArray[np.float64], others_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Along a line of corners; after the last one both clocks run alike."""
    inside: NDArray[np.float64] = np.interp(times_s, corners_s, others_s)
    beyond: NDArray[np.float64] = np.maximum(0.0, times_s - corners_s[-1])
    return inside + beyond


def shared_clock(
    *, pictures_per_s: float, picture_s: float, horizon_s: float, generator: np.random.Generator
) -> SharedClock:
    """Pictures at random times for ``horizon_s`` seconds, each ``picture_s`` of the whole GPU's time.

    Raises:
        PlanError: more pictures than half of the GPU's time can take.
    """
    if pictures_per_s * picture_s * _SHARES >= 1:
        raise PlanError(
            f"{pictures_per_s:g} pictures a second of {picture_s * 1e3:g} ms need more than "
            "the half of the GPU that a busy language model leaves them",
            f"fewer than {1 / (_SHARES * picture_s):.3g} pictures a second, or a GPU of their own",
        )
    count = max(1, int(pictures_per_s * horizon_s))
    arrived = np.cumsum(generator.exponential(1 / pictures_per_s, count))
    service_s = _SHARES * picture_s
    # Lindley: a picture begins when it is there and the one before is done
    order = np.arange(count)
    begun = np.maximum.accumulate(arrived - order * service_s) + order * service_s
    ended = begun + service_s
    wall = np.concatenate(([0.0], np.column_stack([begun, ended]).ravel()))
    slope = np.tile([1.0, 1.0 / _SHARES], count)  # idle of pictures, then busy
    own = np.concatenate(([0.0], np.cumsum(np.diff(wall) * slope)))
    return SharedClock(wall, own, ended - arrived)
