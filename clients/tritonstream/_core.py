"""What both clients share: options, endpoints, model descriptions, and how a call is made from arguments."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import _checks, errors
from ._call import Call
from ._channel import ChannelConfig
from ._codec import Codec
from ._infer import InferTask
from ._request import GenerateTask
from ._retry import Budget, contradicts
from ._routing import Pool
from ._settings import Settings
from ._shm import Regions
from ._task import Task
from ._wish import Messages, Prompt, Wish
from .hooks import Hooks, with_tracing
from .models import Characters, ModelDescription
from .options import Degrade, Folder, Keepalive, Retry, Timeouts, Tls

DEFAULT_URL = "127.0.0.1:8001"


class _Forks:
    """How many forks lie between the process that imported this and the one that runs."""

    count = 0


def _count_fork() -> None:
    _Forks.count += 1


if hasattr(os, "register_at_fork"):  # instead of a system call for every token
    os.register_at_fork(after_in_child=_count_fork)


class Core:
    """State of a client without its channels.

    Raises:
        UsageError: for options that contradict each other.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        endpoints: Sequence[str] | None = None,
        timeouts: Timeouts | None = None,
        retry: Retry | None = None,
        degrade: Sequence[Degrade] = (),
        traffic_class: str | None = None,
        keepalive: Keepalive | None = Keepalive(),  # noqa: B008  (frozen)
        tls: Tls | bool | None = None,
        headers: Mapping[str, str] | None = None,
        tokenizer: Folder | Mapping[str, Folder] | None = None,
        hooks: Iterable[Hooks] = (),
        tracing: bool | None = None,
        channel_options: Sequence[tuple[str, Any]] = (),
    ) -> None:
        if url is not None and endpoints is not None:
            raise errors.UsageError("give url or endpoints, not both")
        if endpoints is not None:
            _checks.sequence_of(str, "a list of host:port; for one server give url")("endpoints", endpoints)
        if url is not None:
            _checks.name_of("url", url)
        _checks.instance(Keepalive, type(None), what="a Keepalive, or None")("keepalive", keepalive)
        _checks.instance(Tls, bool, type(None), what="a Tls, True or None")("tls", tls)
        _checks.instance(bool, type(None), what="True, False or None")("tracing", tracing)
        hooks = tuple(hooks) if isinstance(hooks, Iterable) else hooks
        _checks.sequence_of(Hooks, "a list of Hooks")("hooks", hooks)
        for folder in tokenizer.values() if isinstance(tokenizer, Mapping) else (tokenizer,):
            if folder is not None:
                _checks.folder("tokenizer", folder)
        self.pool = Pool(list(endpoints) if endpoints is not None else [DEFAULT_URL if url is None else url])
        settings = {
            "timeouts": timeouts,
            "retry": retry,
            "degrade": degrade,
            "traffic_class": traffic_class,
            "headers": headers,
        }
        self.settings = Settings(hooks=with_tracing(hooks, tracing)).with_overrides(
            {name: value for name, value in settings.items() if value is not None}
        )
        self.budget = Budget(self.settings.retry)
        self.channel = ChannelConfig(
            keepalive,
            Tls() if tls is True else tls or None,
            self.settings.timeouts.connect_s,
            tuple(channel_options),
        )
        self.models: dict[str, ModelDescription] = {}
        self.regions = Regions()
        self._tokenizer = tokenizer
        self._codecs: dict[str, Codec] = {}
        self._pid, self._forks = os.getpid(), _Forks.count
        self.closed = False

    def check_usable(self) -> None:
        """Raises:
        ClosedError: after close(), and in a forked child.
        """
        self.check_process()
        if self.closed:
            raise errors.ClosedError("the client is closed")

    def check_process(self) -> None:
        """Raises:
        ClosedError: in a forked child, where the parent's connections must not be touched.
        """
        if self._forks != _Forks.count:
            raise errors.ClosedError(
                f"this client was made in process {self._pid}; gRPC's connections do not survive a fork: "
                "make a client in the child"
            )

    @property
    def forked(self) -> bool:
        return self._forks != _Forks.count

    def call(self, model: str, task: Task) -> Call:
        """Makes the call of one task."""
        self.check_usable()
        _checks.name_of("model", model)
        settings = self.settings.with_overrides(task.params)
        return Call(model, task, settings, self.pool, self.budget, time.monotonic())

    def generation(
        self,
        model: str,
        prompt: Prompt | None,
        messages: Messages | None,
        params: Mapping[str, Any],
        tools: Sequence[Mapping[str, Any]] | None = None,
        client_template: bool = False,
        at_once: bool = False,
    ) -> Call:
        """Makes the call of a generation; checks all that can be checked without the server."""
        return self.call(model, GenerateTask(Wish(prompt, messages, params, tools, client_template, at_once)))

    def inference(self, model: str, inputs: Mapping[str, Any], params: Mapping[str, Any]) -> Call:
        """Makes the call of plain tensors."""
        _checks.tensors("inputs", inputs)
        regions = self.regions if params.get("shared_memory") else None
        return self.call(model, InferTask(inputs, params, regions))

    def question(self, model: str) -> Call:
        """A call that only asks the server about a model."""
        return self.call(model, InferTask({}))

    def route(self, model: ModelDescription, task: Task) -> ModelDescription:
        """The model that is called in place of ``model``: the engine, where that decodes better here."""
        engine = model.engine
        if engine is None or model.characters is Characters.WHOLE or not task.needs_codec(engine):
            return model
        return model if self._codec_key(engine, task) is None else engine

    def codec(self, model: ModelDescription, task: Task) -> Codec | None:
        """The tokenizer of a model, loaded when a task needs it; None where none was given."""
        key = self._codec_key(model, task)
        if key is not None and key not in self._codecs:
            self._codecs[key] = Codec(key)
        return None if key is None else self._codecs[key]

    def must_load(self, model: ModelDescription, task: Task) -> bool:
        """Whether ``codec`` will take its time."""
        key = self._codec_key(model, task)
        return key is not None and key not in self._codecs

    def _codec_key(self, model: ModelDescription, task: Task) -> str | None:
        given = self._tokenizer
        if given is None or not task.needs_codec(model):
            return None
        folder = given.get(model.name, given.get(model.through)) if isinstance(given, Mapping) else given
        return None if folder is None else os.fspath(folder)

    def forget(self, model: str, error: errors.TritonStreamError) -> None:
        """Drops a description that the server has just contradicted, so that the next call reads it anew."""
        if isinstance(error, (errors.ModelNotFound, errors.ModelNotReady)) or contradicts(error):
            self.models.pop(model, None)
