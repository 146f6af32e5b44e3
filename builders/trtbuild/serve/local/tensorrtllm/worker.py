"""The process that owns the engine: takes jobs from the stub, steps, and answers with what each step made.

Started by ``link.py`` with one end of a socket pair. It ends with the stub: by the end of the pair, and by a
death signal while a step runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from .engine import Engine
from .grammar import GuideCheck
from .jobs import Cancel, Event, Failed, Gauges, Job, Loaded, Progress
from .settings import Settings

# What carries tokens and pictures goes first, the engine takes what is left of the CPU. On two cores, beside
# SmolLM2-135M with eight users, a classifier's P99 at 10 pictures/s was 4.9 times its own alone with this
# only, and 1.05 times with the group below, at 121 and 156 tokens/s.
_NICE = 5
# Where the kernel groups processes by session (sched_autogroup), nice counts inside a group alone, and what
# wakes up waits behind the engine's threads of its own group. So the engine has a group, as nice as itself.
_AUTOGROUP = Path("/proc/self/autogroup")
_AUTOGROUP_TRIES = 20  # the kernel takes one such change in a tenth of a second, of all processes
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent(parent_pid: int) -> None:
    """Asks the kernel to end this process when the thread that started it ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # it ended before the call
        os._exit(1)


def give_way() -> None:
    """Lets everything else on the CPU go first; call it before the first thread is started."""
    os.nice(_NICE)
    with contextlib.suppress(OSError):  # a group's leader, or a kernel without such groups
        os.setsid()
    for _ in range(_AUTOGROUP_TRIES):
        if _group_is_nice():
            return
        time.sleep(0.1)


def _group_is_nice() -> bool:
    """Whether nothing is left to try."""
    try:
        _AUTOGROUP.write_text(str(_NICE))
    except BlockingIOError:
        return False
    except OSError:  # no such groups here
        return True
    return True


def make_pipeline(settings: Settings) -> Any:
    """The continuous-batching pipeline on the CPU, with exactly the pool of ``settings.limits``."""
    import openvino_genai

    limits = settings.limits
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.num_kv_blocks = limits.pool_blocks
    scheduler.max_num_seqs = limits.max_sequences
    scheduler.max_num_batched_tokens = max(limits.max_num_tokens, limits.max_sequences)
    scheduler.dynamic_split_fuse = limits.chunked_context
    scheduler.enable_prefix_caching = limits.kv_reuse
    # A CPU with AMX would compute in bfloat16 by itself: other tokens than elsewhere, steps of few streams a
    # third slower (smollm2-135m, two cores), and crashes on weights of 32 columns (2026.4.1).
    properties: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "f32"}
    if settings.threads:
        properties["INFERENCE_NUM_THREADS"] = settings.threads
    return openvino_genai.ContinuousBatchingPipeline(str(settings.weights), scheduler, "CPU", properties)


def warm_up(pipeline: Any, guided: bool) -> None:
    """One short request: the first inference allocates and compiles. With guided decoding, a guide too: it
    fails here, and not at the first client, for weights that came without a tokenizer."""
    import numpy as np
    import openvino
    import openvino_genai

    config = openvino_genai.GenerationConfig()
    config.apply_chat_template = False
    config.max_new_tokens = 2
    config.stop_token_ids, config.eos_token_id, config.ignore_eos = {0}, 0, True
    if guided:
        config.structured_output_config = openvino_genai.StructuredOutputConfig(regex=".*")
    handle = pipeline.add_request(0, openvino.Tensor(np.ones((1, 8), np.int64)), config)
    while pipeline.has_non_finished_requests():
        pipeline.step()
    del handle


class Worker:
    """The loop between the socket and the engine."""

    def __init__(self, connection: Connection, engine: Engine, stats_period_s: float) -> None:
        self._connection = connection
        self._engine = engine
        self._stats_period_s = stats_period_s
        self._last_stats_s = 0.0

    def run(self) -> None:
        """Until the stub closes its end or sends None."""
        self._connection.send(Progress([], self._engine.gauges()))
        while True:
            events: list[Event] = []
            while self._connection.poll(0 if self._engine.busy or events else None):
                message = self._connection.recv()
                if message is None:
                    return
                events += self._take(message)
            if self._engine.busy:
                events += self._engine.step()
            gauges = self._gauges_if_due()
            if events or gauges:
                self._connection.send(Progress(events, gauges))

    def _take(self, message: Job | Cancel) -> list[Event]:
        if isinstance(message, Cancel):
            return self._engine.cancel(message.key)
        return self._engine.submit(message)

    def _gauges_if_due(self) -> Gauges | None:
        """At most once a period while busy, and always when the engine comes to rest."""
        now_s = time.monotonic()
        if self._engine.busy and now_s - self._last_stats_s < self._stats_period_s:
            return None
        self._last_stats_s = now_s
        return self._engine.gauges()


def main(descriptor: int, parent_pid: int) -> None:
    """Entry of the process: the first message is the Settings, the answer is Loaded or Failed."""
    die_with_parent(parent_pid)
    give_way()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C reaches the group; the server decides
    connection = Connection(descriptor)
    settings: Settings = connection.recv()
    try:
        pipeline = make_pipeline(settings)
        warm_up(pipeline, settings.guided)
        guides = GuideCheck() if settings.guided else None
        engine = Engine(pipeline, settings.limits, guides)
        connection.send(Loaded())
        Worker(connection, engine, settings.stats_period_s).run()
        os._exit(0)  # nothing is left to write, and the engine's own teardown takes a second
    except EOFError:
        os._exit(0)
    except ImportError as error:
        connection.send(Failed(f"{error}; pip install 'trtbuild[local]'"))
        sys.exit(1)
    except Exception as error:  # told to the stub, which tells every client that waits
        connection.send(Failed(f"{type(error).__name__}: {error}"))
        sys.exit(1)
