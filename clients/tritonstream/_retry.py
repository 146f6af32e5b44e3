"""Whether and when a failed request is sent again. Pure: random numbers and time come from outside."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from . import errors
from .options import Retry

_CURABLE = (
    errors.ConnectError,
    errors.ConnectTimeout,
    errors.ConnectionLost,
    errors.Overloaded,
    errors.Unavailable,
)


class Budget:
    """Bounds retries to a share of requests: each request earns ``budget_ratio``, each retry costs 1.

    Shared by all requests of a client, therefore locked.
    """

    def __init__(self, retry: Retry) -> None:
        self._lock = threading.Lock()
        self._ratio = retry.budget_ratio
        self._reserve = retry.budget_reserve
        self._balance = retry.budget_reserve

    def earn(self) -> None:
        with self._lock:
            self._balance = min(self._balance + self._ratio, max(self._reserve, 1.0))

    def spend(self) -> bool:
        with self._lock:
            if self._balance < 1.0:
                return False
            self._balance -= 1.0
            return True


def wait_s(retry: Retry, tries: int, uniform: Callable[[float, float], float] = random.uniform) -> float:
    """Returns the jittered wait before the next try, after ``tries`` failed ones."""
    return uniform(0.0, min(retry.max_wait_s, retry.base_wait_s * 2.0 ** (tries - 1)))


def retryable(error: errors.TritonStreamError) -> bool:
    """Whether another try can cure this failure: nothing was generated, or nobody saw it."""
    return isinstance(error, _CURABLE)


def contradicts(error: errors.TritonStreamError) -> bool:
    """Whether this may come of taking the model for another one: a refusal, by the server or in the client.

    A server before 26.04 gives a stream's refusals no code.
    """
    refused = isinstance(error, (errors.InvalidRequest, errors.UsageError))
    return refused or (type(error) is errors.ServerError and error.code is None)


def degradable(error: errors.TritonStreamError) -> bool:
    """Whether a smaller wish can help. A refusal of the request's own values, or of the caller, is none."""
    return (
        retryable(error)
        or isinstance(error, (errors.FirstTokenTimeout, errors.ModelNotFound))
        or (type(error) is errors.ServerError)
    )
