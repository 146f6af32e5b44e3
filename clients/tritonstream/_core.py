"""What both clients share: options, endpoints, model descriptions, and how a call is made from arguments."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from . import errors
from ._call import Call, Settings
from ._channel import ChannelConfig
from ._codec import load_codec
from ._request import Codec, Messages, Prompt, Wish
from ._retry import Budget
from ._routing import Pool
from .models import ModelDescription, ModelKind
from .options import Degrade, Keepalive, Retry, Timeouts, Tls

DEFAULT_URL = "127.0.0.1:8001"


class Core:
    """State of a client without its channels."""

    def __init__(
        self,
        url: str | None,
        *,
        endpoints: Sequence[str] | None,
        timeouts: Timeouts,
        retry: Retry,
        degrade: Sequence[Degrade],
        keepalive: Keepalive | None,
        tls: Tls | bool | None,
        headers: Mapping[str, str] | None,
        tokenizer: Any,
        channel_options: Sequence[tuple[str, Any]],
    ) -> None:
        if url is not None and endpoints is not None:
            raise errors.UsageError("give url or endpoints, not both")
        if isinstance(endpoints, str):
            raise errors.UsageError("endpoints is a list of host:port; for one server give url")
        self.pool = Pool(list(endpoints) if endpoints is not None else [url or DEFAULT_URL])
        self.settings = Settings(timeouts, retry, tuple(degrade), dict(headers or {}))
        self.budget = Budget(retry)
        self.channel = ChannelConfig(
            keepalive,
            Tls() if tls is True else tls or None,
            timeouts.connect_s,
            tuple(channel_options),
        )
        self.models: dict[str, ModelDescription] = {}
        self._tokenizer = tokenizer
        self._codecs: dict[str, Codec] = {}
        self._pid = os.getpid()
        self.closed = False

    def check_usable(self) -> None:
        """Raises:
        ClosedError: after close(), and in a forked child, where the parent's connections must not be touched.
        """
        if self._pid != os.getpid():
            raise errors.ClosedError(
                f"this client was made in process {self._pid}; gRPC's connections do not survive a fork: "
                "make a client in the child"
            )
        if self.closed:
            raise errors.ClosedError("the client is closed")

    @property
    def forked(self) -> bool:
        return self._pid != os.getpid()

    def call(
        self,
        model: str,
        prompt: Prompt | None,
        messages: Messages | None,
        params: Mapping[str, Any],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        client_template: bool = False,
    ) -> Call:
        """Makes the call of one request; checks all that can be checked without the server."""
        self.check_usable()
        if not isinstance(model, str) or not model:
            raise errors.UsageError(f"model is {model!r}; give the name of a model of the server")
        wish = Wish(prompt, messages, params, tools, client_template)
        settings = self.settings.with_overrides(params)
        return Call(model, wish, settings, self.pool, self.budget, time.monotonic())

    def codec(self, model: ModelDescription, wish: Wish) -> Codec | None:
        """The tokenizer of a model, loaded when something needs it."""
        needed = model.kind is ModelKind.ENGINE or (
            wish.messages is not None and "messages" not in model.inputs
        )
        if not needed and not wish.client_template:
            return None
        path = self._tokenizer.get(model.name) if isinstance(self._tokenizer, Mapping) else self._tokenizer
        if path is None:
            return None
        key = os.fspath(path)
        if key not in self._codecs:
            self._codecs[key] = load_codec(key)
        return self._codecs[key]

    def forget(self, model: str, error: errors.TritonStreamError) -> None:
        """Drops a description that the server has just contradicted, so that the next call reads it anew."""
        if isinstance(error, (errors.ModelNotFound, errors.InvalidRequest, errors.ModelNotReady)):
            self.models.pop(model, None)
