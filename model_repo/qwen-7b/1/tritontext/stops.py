"""Stop strings in a text that arrives in pieces.

Semantics, the same however the text is cut: the stop that is complete first ends the text (generation would
have ended there); of several that are complete at the same character the longest counts. Neither the stop
nor anything after it is given out. Comparison is by code point, without normalisation. Empty strings are
ignored, since NVIDIA's clients send ``[""]`` for "none".

Only the longest end of the text that begins some stop is held back. Aho-Corasick: linear in the text,
whatever the number of stops.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from .errors import PromptError

MAX_STOP_WORDS = 64
MAX_STOP_CHARS = 4096  # all of them together


def check_stops(stops: Sequence[str]) -> None:
    """Raises PromptError for more stop strings than a server looks for."""
    words, chars = len(stops), sum(map(len, stops))
    if words > MAX_STOP_WORDS or chars > MAX_STOP_CHARS:
        raise PromptError(
            f"stop_words holds {words} words of {chars} characters together; at most {MAX_STOP_WORDS} words "
            f"of {MAX_STOP_CHARS} characters are served"
        )


class StopMatcher:
    """Finds the first of several stop strings.

    >>> matcher = StopMatcher(["\\n\\nUser:"])
    >>> matcher.feed("Yes.\\n\\nUs"), matcher.feed("er: hi"), matcher.matched
    ('Yes.', '', '\\n\\nUser:')
    """

    __slots__ = ("_depth", "_fail", "_firsts", "_goto", "_match", "_owner", "_state", "matched")

    def __init__(self, stops: Iterable[str]) -> None:
        self.matched: str | None = None
        self._goto: list[dict[str, int]] = [{}]
        self._owner = [""]  # a stop that begins with the state's characters
        self._depth = [0]
        self._match = [0]  # length of the longest stop that ends in this state
        self._fail = [0]
        for stop in stops:
            if stop:
                self._insert(stop)
        self._link()
        self._firsts = frozenset(self._goto[0])
        self._state = 0

    def _insert(self, stop: str) -> None:
        state = 0
        for char in stop:
            following = self._goto[state].get(char)
            if following is None:
                following = len(self._goto)
                self._goto[state][char] = following
                self._goto.append({})
                self._owner.append(stop)
                self._depth.append(self._depth[state] + 1)
                self._match.append(0)
                self._fail.append(0)
            state = following
        self._match[state] = len(stop)

    def _link(self) -> None:
        queue = deque(self._goto[0].values())
        while queue:
            state = queue.popleft()
            self._match[state] = self._match[state] or self._match[self._fail[state]]
            for char, following in self._goto[state].items():
                self._fail[following] = self._step(self._fail[state], char)
                queue.append(following)

    def _step(self, state: int, char: str) -> int:
        goto = self._goto
        while True:
            following = goto[state].get(char)
            if following is not None:
                return following
            if state == 0:
                return 0
            state = self._fail[state]

    @property
    def held(self) -> str:
        """The end of the text that may be the beginning of a stop."""
        return self._owner[self._state][: self._depth[self._state]]

    def feed(self, text: str) -> str:
        """Returns what can be given out now; after a match ``matched`` is set and everything is ''."""
        if self.matched is not None:
            return ""
        before = self._state
        if before == 0 and self._firsts.isdisjoint(text):
            return text
        state, match, step = before, self._match, self._step
        for end, char in enumerate(text, 1):
            state = step(state, char)
            if match[state]:
                self.matched = self._owner[state][self._depth[state] - match[state] : self._depth[state]]
                self._state = 0
                return self._cut(before, text, self._depth[before] + end - match[state])
        self._state = state
        return self._cut(before, text, self._depth[before] + len(text) - self._depth[state])

    def _cut(self, before: int, text: str, length: int) -> str:
        """The first ``length`` characters of what was held in ``before``, followed by ``text``."""
        held = self._depth[before]
        if length <= held:
            return self._owner[before][:length]
        return self._owner[before][:held] + text[: length - held]

    def flush(self) -> str:
        """Ends the text: what was held was no stop."""
        held, self._state = self.held, 0
        return held
