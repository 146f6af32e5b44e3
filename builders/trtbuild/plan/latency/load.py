"""What is asked of a deployment: requests as columns, and when they come."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Lengths:
    """Tokens of prompts or answers: lognormal with a mean and a coefficient of variation, within bounds."""

    mean: float
    variation: float = 0.0  # standard deviation / mean; 0: all alike
    largest: int | None = None

    def draw(self, count: int, generator: np.random.Generator) -> NDArray[np.int64]:
        """``count`` lengths, each at least 1."""
        if self.variation <= 0:
            drawn = np.full(count, self.mean)
        else:
            sigma2 = np.log1p(self.variation**2)
            drawn = generator.lognormal(np.log(self.mean) - sigma2 / 2, np.sqrt(sigma2), count)
        lengths: NDArray[np.int64] = np.clip(np.rint(drawn), 1, self.largest).astype(np.int64)
        return lengths

    @property
    def nearly_longest(self) -> int:
        """Tokens that one in a thousand exceeds, rounded up to 64."""
        sigma = math.sqrt(math.log1p(self.variation**2))
        return 64 * math.ceil(self.mean * math.exp(3.09 * sigma - sigma**2 / 2) / 64)


@dataclass(frozen=True)
class Requests:
    """Requests in the order of their arrival.

    ``limits`` are the answers' token limits, which GUARANTEED_NO_EVICT reserves for; default: their lengths.
    ``prefixes`` name prompts' shared beginnings of ``prefix_tokens`` tokens; -1: none.
    """

    isl: Sequence[int]
    osl: Sequence[int]
    limits: Sequence[int] = ()
    prefixes: Sequence[int] = ()
    prefix_tokens: Sequence[int] = ()

    def __len__(self) -> int:
        return len(self.isl)

    def limit(self, request: int) -> int:
        """Tokens that the request may generate."""
        return self.limits[request] if self.limits else self.osl[request]


@dataclass(frozen=True)
class OpenLoop:
    """Requests come at given times, whatever the server does."""

    arrivals_s: Sequence[float]


@dataclass(frozen=True)
class ClosedLoop:
    """Each of ``users`` sends its next request when it has its answer and has thought about it.

    None is sent from ``until_s`` on; default: all are.
    """

    users: int
    think_s: float = 0.0
    until_s: float = math.inf


Load: TypeAlias = OpenLoop | ClosedLoop


@dataclass(frozen=True)
class Traffic:
    """A load to simulate."""

    requests: Requests
    load: Load = field(default_factory=lambda: ClosedLoop(1))


def all_at_once(requests: Requests) -> Traffic:
    """Every request is there from the beginning."""
    return Traffic(requests, OpenLoop([0.0] * len(requests)))


def poisson(requests: Requests, *, rate: float, generator: np.random.Generator) -> Traffic:
    """``rate`` requests a second on average, each independent of the others."""
    gaps = generator.exponential(1.0 / rate, len(requests))
    return Traffic(requests, OpenLoop(np.cumsum(gaps).tolist()))


def make_requests(
    *,
    count: int,
    isl: Lengths,
    osl: Lengths,
    generator: np.random.Generator,
    limit: int | None = None,
    prefixes: int = 0,
    prefix_tokens: int = 0,
) -> Requests:
    """``count`` requests, each with one of ``prefixes`` shared beginnings where there are any."""
    prompts = isl.draw(count, generator)
    answers = osl.draw(count, generator)
    if limit is not None:
        answers = np.minimum(answers, limit)
    shared = generator.integers(0, prefixes, count) if prefixes and prefix_tokens else None
    return Requests(
        isl=prompts.tolist(),
        osl=answers.tolist(),
        limits=() if limit is None else [limit] * count,
        prefixes=() if shared is None else shared.tolist(),
        prefix_tokens=() if shared is None else np.minimum(prompts, prefix_tokens).tolist(),
    )
