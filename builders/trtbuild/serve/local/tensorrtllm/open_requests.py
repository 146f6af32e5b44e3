"""The requests that are being answered, by job and by the client's request id."""

from __future__ import annotations

import threading

from .answers import Answer


class OpenRequests:
    """Thread safe. Several requests may carry one id: a stop reaches all of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_key: dict[int, Answer] = {}
        self._by_id: dict[str, list[Answer]] = {}

    def add(self, answer: Answer) -> None:
        with self._lock:
            self._by_key.update(dict.fromkeys(answer.keys, answer))
            if answer.request_id:
                self._by_id.setdefault(answer.request_id, []).append(answer)

    def remove(self, answer: Answer) -> None:
        with self._lock:
            for key in answer.keys:
                self._by_key.pop(key, None)
            named = self._by_id.get(answer.request_id, [])
            if answer in named:
                named.remove(answer)
                if not named:
                    del self._by_id[answer.request_id]

    def owner(self, key: int) -> Answer | None:
        return self._by_key.get(key)

    def named(self, request_id: str) -> list[Answer]:
        with self._lock:
            return list(self._by_id.get(request_id, ()))

    def all(self) -> list[Answer]:
        """Each request once, oldest first."""
        with self._lock:
            return list(dict.fromkeys(self._by_key.values()))
