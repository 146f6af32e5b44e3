"""When requests of an open loop are to be sent. Pure: times in seconds from the run's beginning."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from trtbuild.measure.load.spec import Bursts, Closed, Constant, Poisson, Ramp, Replay, Shape


def arrival_times(shape: Shape, *, duration_s: float, rng: random.Random) -> Iterator[float]:
    """Times at which requests arrive, ascending, below ``duration_s``.

    ``Closed`` and ``Replay`` have none of their own: users and traces say when.
    """
    times = _endless(shape, duration_s, rng)
    for time_s in times:
        if time_s >= duration_s:
            return
        yield time_s


def _endless(shape: Shape, duration_s: float, rng: random.Random) -> Iterator[float]:
    if isinstance(shape, Poisson):
        now_s = rng.expovariate(shape.rate_per_s)
        while True:
            yield now_s
            now_s += rng.expovariate(shape.rate_per_s)
    elif isinstance(shape, Constant):
        number = 0
        while True:  # by multiplication: sums of 1/rate drift
            yield number / shape.rate_per_s
            number += 1
    elif isinstance(shape, Bursts):
        number = 0
        while True:
            yield (number // shape.requests) * shape.every_s
            number += 1
    elif isinstance(shape, Ramp):
        yield from _ramp(shape, duration_s, rng)
    else:
        assert isinstance(shape, (Closed, Replay))


def _ramp(shape: Ramp, duration_s: float, rng: random.Random) -> Iterator[float]:
    """A Poisson process whose rate is linear in time, by inverting its integral.

    Λ(t) = a·t + (b − a)·t²/(2·T) is the mean number until t; unit-rate arrivals Λ are put through Λ⁻¹.
    """
    begin, slope = shape.from_per_s, (shape.to_per_s - shape.from_per_s) / duration_s
    most = begin * duration_s + slope * duration_s**2 / 2
    mass = rng.expovariate(1.0)
    while mass < most:
        if abs(slope) < 1e-12:
            yield mass / begin
        else:
            yield (math.sqrt(begin * begin + 2 * slope * mass) - begin) / slope
        mass += rng.expovariate(1.0)


def user_starts(shape: Closed) -> list[float]:
    """When each user sends the first request."""
    return [index * shape.ramp_s / shape.users for index in range(shape.users)]
