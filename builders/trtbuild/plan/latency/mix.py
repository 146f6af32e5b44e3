"""What a deployment is asked, as a prediction is asked for: a mix of requests at a level, or a whole load."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trtbuild.plan.latency.load import ClosedLoop, Lengths, Requests, Traffic, make_requests, poisson

_WARM_UP = 0.1  # of the requests, the first ones: the deployment fills


@dataclass(frozen=True)
class Mix:
    """Requests of one kind, and the pictures beside them."""

    isl: Lengths
    osl: Lengths
    limit: int | None = None
    prefixes: int = 0
    prefix_tokens: int = 0
    think_s: float = 0.0
    pictures_per_s: float = 0.0
    picture_s: float = 0.0

    def requests(self, count: int, seed: int) -> Requests:
        """``count`` requests of this mix, the same ones for the same seed."""
        return make_requests(
            count=count,
            isl=self.isl,
            osl=self.osl,
            generator=np.random.default_rng(seed),
            limit=self.limit,
            prefixes=self.prefixes,
            prefix_tokens=self.prefix_tokens,
        )


@dataclass(frozen=True)
class Level:
    """How much is asked: requests a second, or users who each wait for their answer."""

    rate: float | None = None
    users: int | None = None


@dataclass(frozen=True)
class Offered:
    """A load to predict.

    Figures are of what is sent in the window from ``warm_up_s`` to ``end_s``; without an end, of all but the
    first ``warm_up`` requests.
    """

    traffic: Traffic
    warm_up: int = 0
    warm_up_s: float = 0.0
    end_s: float | None = None
    seed: int = 1  # of the pictures
    pictures_per_s: float = 0.0
    picture_s: float = 0.0


def offered(mix: Mix, level: Level, requests: int, seed: int) -> Offered:
    """``requests`` requests of a mix at a level."""
    asked = mix.requests(requests, seed)
    if level.users is not None:
        traffic = Traffic(asked, ClosedLoop(level.users, mix.think_s))
    else:
        traffic = poisson(asked, rate=level.rate or 1.0, generator=np.random.default_rng(seed + 1))
    return Offered(
        traffic,
        int(requests * _WARM_UP),
        seed=seed,
        pictures_per_s=mix.pictures_per_s,
        picture_s=mix.picture_s,
    )
