"""The engine's body and the stub's answers without a server: scripted pipelines, recorded responses."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.support.engine_jobs import job, limits

from trtbuild.serve.local.tensorrtllm.answers import Answer, Tensors, merged
from trtbuild.serve.local.tensorrtllm.jobs import Event, Finish
from trtbuild.serve.local.tensorrtllm.parse import RequestPlan, Wanted

pytest.importorskip("openvino_genai")

FINAL = 1


class FakeTriton:
    """Stands for ``triton_python_backend_utils`` and one response sender; records what is sent."""

    TRITONSERVER_RESPONSE_COMPLETE_FINAL = FINAL

    class TritonError:
        INVALID_ARG, CANCELLED, UNAVAILABLE, INTERNAL = range(4)

        def __init__(self, message: str, kind: int) -> None:
            self.message, self.kind = message, kind

    def __init__(self) -> None:
        self.sent: list[tuple[Any, int]] = []
        self.asked_after_final = 0
        self.cancelled = False

    def Tensor(self, name: str, value: Any) -> tuple[str, Any]:
        return name, value

    def InferenceResponse(self, tensors: Any = (), error: Any = None) -> Any:
        return SimpleNamespace(tensors=dict(tensors), error=error)

    def send(self, response: Any = None, flags: int = 0) -> None:
        assert FINAL not in [flag for _, flag in self.sent], "sent after the final response"
        self.sent.append((response, flags))

    def is_cancelled(self) -> bool:
        if FINAL in [flag for _, flag in self.sent]:
            self.asked_after_final += 1
        return self.cancelled


WANTED = Wanted(exclude_input=True, times=False, num_input_tokens=False, num_output_tokens=False)


def answer(
    triton: FakeTriton, *jobs: Any, outputs: tuple[str, ...] = ("output_ids", "sequence_length")
) -> Answer:
    plan = RequestPlan(jobs, tuple((row, 0) for row in range(len(jobs))), len(jobs), WANTED)
    return Answer(triton, triton, plan, outputs, Tensors(triton, batched=True), "")


def test_the_flag_comes_with_the_last_event_of_all_jobs() -> None:
    triton = FakeTriton()
    both = answer(triton, job(1), job(2))
    assert not both.take(Event(1, [[5]]))
    assert not both.take(Event(1, [[6]], Finish.LENGTH))
    assert both.take(Event(2, [[7]], Finish.STOP))
    assert [flags for _, flags in triton.sent] == [0, 0, FINAL]


def test_the_server_is_not_asked_about_a_request_that_is_answered() -> None:
    """It would end with a segmentation fault."""
    triton = FakeTriton()
    one = answer(triton, job(1))
    assert not one.client_left()
    one.take(Event(1, [[5]], Finish.LENGTH))
    assert not one.client_left()
    one.fail("too late")
    assert triton.asked_after_final == 0
    assert len(triton.sent) == 1


def test_a_client_that_left_gets_an_end_and_no_more_tokens() -> None:
    triton = FakeTriton()
    one = answer(triton, job(1))
    triton.cancelled = True
    assert one.client_left()
    assert not one.client_left()  # told once
    assert not one.take(Event(1, [[5]]))
    assert one.take(Event(1, [[6]], Finish.CANCELLED))
    ((response, flags),) = triton.sent
    assert flags == FINAL
    assert response.error.kind == FakeTriton.TritonError.CANCELLED


def test_beams_of_different_length_are_padded() -> None:
    triton = FakeTriton()
    answer(triton, job(1, beam_width=2)).take(Event(1, [[5, 6, 7], [8]], Finish.STOP))
    tensors = triton.sent[0][0].tensors
    assert tensors["output_ids"].tolist() == [[[5, 6, 7], [8, -1, -1]]]
    assert tensors["sequence_length"].tolist() == [[3, 1]]
    assert tensors["output_ids"].dtype == np.int32


def test_a_model_without_batching_has_no_leading_dimension() -> None:
    triton = FakeTriton()
    plan = RequestPlan((job(1),), ((0, 0),), 1, WANTED)
    one = Answer(triton, triton, plan, ("output_ids", "sequence_length"), Tensors(triton, batched=False), "")
    one.take(Event(1, [[5, 6]], Finish.STOP))
    tensors = triton.sent[0][0].tensors
    assert tensors["output_ids"].tolist() == [[5, 6]]
    assert tensors["sequence_length"].tolist() == [2]


def test_what_waited_goes_together_in_order() -> None:
    events = [
        Event(1, [[5]], None, [[-0.5]], [-0.5]),
        Event(2, [[9]]),
        Event(1, [[6]], None, [[-0.25]], [-0.75]),
        Event(1, [[7]], Finish.LENGTH, [[-1.0]], [-1.75]),
    ]
    assert merged(events) == [
        Event(1, [[5, 6, 7]], Finish.LENGTH, [[-0.5, -0.25, -1.0]], [-1.75]),
        Event(2, [[9]]),
    ]
    assert merged([Event(1, [[5]]), Event(1, [], Finish.ERROR, message="x")]) == [
        Event(1, [[5]], Finish.ERROR, message="x")
    ]


class ScriptedPipeline:
    """A pipeline whose steps give each request one token of its script; counts blocks of 32 tokens."""

    def __init__(self, **script: Any) -> None:
        self.steps = 0
        self.handles: dict[int, SimpleNamespace] = {}
        self.status = script.get("status", "RUNNING")

    def add_request(self, key: int, ids: Any, config: Any) -> Any:
        handle = SimpleNamespace(
            made=0, limit=config.max_new_tokens, cancelled=False, unread=[],
            can_read=lambda: bool(self.handles[key].unread),
            read=lambda: {0: self.handles[key].unread.pop(0)},
            get_status=lambda: SimpleNamespace(name=self._status(key)),
            cancel=lambda: setattr(self.handles[key], "cancelled", True),
            stop=lambda: setattr(self.handles[key], "cancelled", True),
        )  # fmt: skip
        self.handles[key] = handle
        return handle

    def _status(self, key: int) -> str:
        handle = self.handles[key]
        return "FINISHED" if handle.made >= handle.limit else self.status

    def step(self) -> None:
        self.steps += 1
        for handle in self.handles.values():
            if handle.cancelled or handle.made >= handle.limit or self.status != "RUNNING":
                continue
            handle.made += 1
            reason = "LENGTH" if handle.made == handle.limit else "NONE"
            handle.unread.append(
                SimpleNamespace(
                    generated_ids=[handle.made], generated_log_probs=[-1.0], score=0.0,
                    finish_reason=SimpleNamespace(name=reason),
                )
            )  # fmt: skip


@pytest.fixture
def engine_of() -> Any:
    from trtbuild.serve.local.tensorrtllm.engine import Engine

    def make(pipeline: ScriptedPipeline, **changes: Any) -> Any:
        return Engine(pipeline, limits(**changes))

    return make


def test_a_cancelled_job_gives_its_room_back_only_after_the_next_step(engine_of: Any) -> None:
    """The pipeline frees blocks in its step; a job that came sooner could be dropped for want of memory."""
    pipeline = ScriptedPipeline()
    engine = engine_of(pipeline, pool_blocks=4)
    engine.submit(job(1, 90, 30))  # 4 blocks
    engine.submit(job(2, 90, 30))
    assert set(pipeline.handles) == {1}
    assert [event.finish for event in engine.cancel(1)] == [Finish.CANCELLED]
    assert set(pipeline.handles) == {1}
    engine.step()
    assert set(pipeline.handles) == {1, 2}


def test_a_job_that_ends_by_itself_makes_room_in_the_same_step(engine_of: Any) -> None:
    pipeline = ScriptedPipeline()
    engine = engine_of(pipeline, pool_blocks=4)
    engine.submit(job(1, 90, 1))
    engine.submit(job(2, 90, 1))
    events = engine.step()
    assert [(event.key, event.beams, event.finish) for event in events] == [(1, [[1]], Finish.LENGTH)]
    assert set(pipeline.handles) == {1, 2}


def test_a_stop_word_cuts_what_follows_it_and_ends_the_job(engine_of: Any) -> None:
    pipeline = ScriptedPipeline()
    engine = engine_of(pipeline)
    engine.submit(job(1, 5, 50, streaming=False, stop_words=((3, 4),)))
    events = [event for _ in range(6) for event in engine.step()]
    assert [(event.beams, event.finish) for event in events] == [([[1, 2, 3, 4]], Finish.STOP)]
    assert pipeline.handles[1].cancelled


def test_a_job_that_the_pipeline_drops_ends_with_an_error(engine_of: Any) -> None:
    pipeline = ScriptedPipeline(status="IGNORED")
    engine = engine_of(pipeline)
    engine.submit(job(1))
    (event,) = engine.step()
    assert event.finish == Finish.ERROR
    assert "ran out of KV blocks" in event.message


def test_after_the_last_job_it_steps_on_until_the_gauges_are_right(engine_of: Any) -> None:
    pipeline = ScriptedPipeline()
    engine = engine_of(pipeline)
    engine.submit(job(1, 5, 3))
    while engine.busy:
        engine.step()
    assert pipeline.steps == 3 + 2


def test_cancelling_what_is_unknown_is_no_error(engine_of: Any) -> None:
    engine = engine_of(ScriptedPipeline())
    assert engine.cancel(99) == []


def test_an_engine_lets_the_others_go_first() -> None:
    """It is nicer than who started it, also where the kernel groups processes by session."""
    code = (
        "import os; from pathlib import Path; from trtbuild.serve.local.tensorrtllm.worker import give_way; "
        "give_way(); group = Path('/proc/self/autogroup'); "
        "print(os.nice(0), os.getsid(0), os.getpid(), group.read_text() if group.exists() else '')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    nice, session, own, *group = done.stdout.split()
    assert int(nice) == min(19, os.nice(0) + 5)
    assert session == own
    assert not group or group[-1] == "5"
