"""A tokenizer folder → what a bare engine needs on this side; see ``tritonstream.text``."""

from __future__ import annotations

from ._request import Codec
from .errors import UnsupportedError


def load_codec(path: str) -> Codec:
    raise UnsupportedError(f"client-side tokenising of {path} is not available yet")
