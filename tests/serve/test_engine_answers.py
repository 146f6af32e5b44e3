"""What comes out of the engine model: a real server, a tiny random model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.support.grpc_engine import EngineClient, EngineError, add_input, request
from tritonclient.grpc import service_pb2

pytestmark = [pytest.mark.server, pytest.mark.alone]

Run = Callable[..., Any]
PROMPT = [10, 20, 30, 40, 50]
ALL = (
    "output_ids", "sequence_length", "cum_log_probs", "output_log_probs", "batch_index", "sequence_index",
    "num_input_tokens", "num_output_tokens",
)  # fmt: skip


async def greedy(client: EngineClient, tokens: int = 24, **inputs: Any) -> list[int]:
    answer = await client.answer(request("tiny", PROMPT, tokens, **inputs))
    return answer.ids


def test_a_stream_brings_each_token_once_and_ends_with_its_last(run: Run) -> None:
    async def body(client: EngineClient) -> None:
        answer = await client.answer(request("tiny", PROMPT, 24, streaming=True))
        assert len(answer.ids) == 24
        assert [response.final for response in answer.responses[:-1]] == [False] * (len(answer.responses) - 1)
        assert answer.responses[-1].final
        assert answer.responses[-1].ids  # the flag comes with the last tokens, not in a message of its own
        for response in answer.responses:
            assert response.tensors["output_ids"].shape == (1, 1, len(response.ids))
            assert response.tensors["sequence_length"].tolist() == [[len(response.ids)]]

    run(body)


def test_without_streaming_the_same_tokens_come_at_once(run: Run) -> None:
    async def body(client: EngineClient) -> None:
        streamed = await client.answer(request("tiny", PROMPT, 24, streaming=True))
        whole = await client.answer(request("tiny", PROMPT, 24))
        assert len(whole.responses) == 1
        assert whole.ids == streamed.ids
        assert whole.responses[0].tensors["sequence_length"].tolist() == [[24]]

    run(body)


def test_only_requested_outputs_are_sent(run: Run) -> None:
    async def body(client: EngineClient) -> None:
        answer = await client.answer(
            request("tiny", PROMPT, 4, outputs=("output_ids",), return_log_probs=True)
        )
        assert set(answer.responses[0].tensors) == {"output_ids"}

    run(body)


def test_a_batch_is_answered_row_by_row(run: Run) -> None:
    rows = [[10, 20, 30, 40, 50], [11, 21, 31, 0, 0], [12, 0, 0, 0, 0]]
    lengths = [5, 3, 1]

    def batch() -> Any:
        message = service_pb2.ModelInferRequest(model_name="tiny")
        add_input(message, "input_ids", np.array(rows, np.int32))
        add_input(message, "input_lengths", np.array(lengths, np.int32)[:, None])
        add_input(message, "request_output_len", np.array([[8], [9], [10]], np.int32))
        add_input(message, "streaming", np.array([[True]] * 3))
        for name in ALL:
            message.outputs.add(name=name)
        return message

    async def body(client: EngineClient) -> None:
        answer = await client.answer(batch())
        by_row: dict[int, list[int]] = {0: [], 1: [], 2: []}
        for response in answer.responses:
            by_row[int(response.tensors["batch_index"][0, 0])] += response.ids
        assert [len(ids) for ids in by_row.values()] == [8, 9, 10]
        for row, (ids, length) in enumerate(zip(rows, lengths, strict=True)):
            alone = await client.answer(request("tiny", ids[:length], 8 + row))
            assert by_row[row] == alone.ids

    run(body)


def test_several_sequences_of_one_prompt_are_told_apart(run: Run) -> None:
    async def body(client: EngineClient) -> None:
        answer = await client.answer(
            request("tiny", PROMPT, 8, outputs=ALL, streaming=True, num_return_sequences=np.int32(3),
                    runtime_top_p=np.float32(1.0), temperature=np.float32(2.0))
        )  # fmt: skip
        by_sequence: dict[int, list[int]] = {}
        for response in answer.responses:
            by_sequence.setdefault(int(response.tensors["sequence_index"][0, 0]), []).extend(response.ids)
        assert sorted(by_sequence) == [0, 1, 2]
        assert {len(ids) for ids in by_sequence.values()} == {8}
        assert len({tuple(ids) for ids in by_sequence.values()}) > 1
        assert [response.final for response in answer.responses].count(True) == 1

    run(body)


def test_beams_come_best_first_in_one_response(run: Run) -> None:
    async def body(client: EngineClient) -> None:
        answer = await client.answer(
            request("tiny", PROMPT, 12, outputs=ALL, beam_width=np.int32(3), return_log_probs=True)
        )
        (response,) = answer.responses
        assert response.tensors["output_ids"].shape == (1, 3, 12)
        assert response.tensors["sequence_length"].tolist() == [[12, 12, 12]]
        scores = response.tensors["cum_log_probs"][0].tolist()
        assert scores == sorted(scores, reverse=True)
        assert response.tensors["output_log_probs"].shape == (1, 3, 12)

    run(body)


def test_log_probabilities_add_up(run: Run) -> None:
    async def body(client: EngineClient) -> None:
        streamed = await client.answer(
            request("tiny", PROMPT, 10, outputs=ALL, streaming=True, return_log_probs=True)
        )
        each = np.concatenate([response.tensors["output_log_probs"][0, 0] for response in streamed.responses])
        assert each.shape == (10,)
        assert (each <= 0).all()
        last = streamed.responses[-1].tensors["cum_log_probs"][0, 0]
        assert last == pytest.approx(each.sum(), rel=1e-4)
        whole = await client.answer(request("tiny", PROMPT, 10, outputs=ALL, return_log_probs=True))
        assert whole.responses[0].tensors["output_log_probs"][0, 0] == pytest.approx(each, abs=1e-3)
        assert whole.responses[0].tensors["cum_log_probs"][0, 0] == pytest.approx(last, abs=1e-3)

    run(body)


def test_token_counts_and_times_when_asked_for(run: Run) -> None:
    times = ("arrival_time_ns", "first_scheduled_time_ns", "first_token_time_ns", "last_token_time_ns")

    async def body(client: EngineClient) -> None:
        answer = await client.answer(
            request("tiny", PROMPT, 6, outputs=(*ALL, *times), streaming=True, return_perf_metrics=True,
                    return_num_input_tokens=True, return_num_output_tokens=True)
        )  # fmt: skip
        last = answer.responses[-1].tensors
        assert last["num_input_tokens"].tolist() == [[5]]
        assert last["num_output_tokens"].tolist() == [[6]]
        stamps = [int(last[name][0, 0]) for name in times]
        assert stamps == sorted(stamps)
        assert stamps[2] < stamps[3]
        plain = await client.answer(request("tiny", PROMPT, 6, outputs=(*ALL, *times)))
        assert not {*times, "num_input_tokens", "num_output_tokens"} & set(plain.responses[0].tensors)

    run(body)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"max_tokens": 0}, "request_output_len is 0"),
        ({"max_tokens": -1}, "request_output_len is -1"),
        ({"prompt": []}, "the prompt is empty"),
        ({"prompt": [1] * 2048}, r"Prompt length (2048) exceeds maximum input length (2047)"),
        ({"prompt": [5, -7]}, "input_ids holds -7; token ids are 0 to 258"),
        (
            {"prompt": [5, 259], "repetition_penalty": np.float32(2)},
            "input_ids holds 259; token ids are 0 to 258",
        ),
        ({"end_id": np.int32(259), "min_tokens": np.int32(2)}, "end_id is 259; token ids are 0 to 258"),
        ({"end_id": np.int32(-2)}, "end_id is -2"),
        ({"len_penalty": np.float32("nan")}, "len_penalty is nan; it must be a finite number"),
        ({"repetition_penalty": np.float32("inf")}, "repetition_penalty is inf"),
        ({"input_lengths": np.int32(9)}, "input_lengths is 9, and input_ids holds 5 tokens"),
        (
            {"beam_width": np.int32(5)},
            "Requested beam width 5 is not between 1 and the engine's",
        ),
        ({"beam_width": np.int32(2), "streaming": True}, "streaming needs beam_width 1"),
        ({"temperature": np.float32(-1)}, "temperature is -1.0"),
        ({"temperature": np.float32("nan")}, "temperature is nan"),
        ({"runtime_top_p": np.float32(1.5)}, "runtime_top_p is 1.5"),
        ({"repetition_penalty": np.float32(0)}, "repetition_penalty is 0.0"),
        ({"presence_penalty": np.float32(3)}, "presence_penalty is 3.0"),
        ({"embedding_bias": np.ones(259, np.float32)}, "embedding_bias cannot be honoured"),
        ({"stop_words_list": np.array([[5, 6], [9, -1]], np.int32)}, "stop_words_list: offset 9"),
        ({"stop": True}, "request ID is not provided"),
        ({"num_return_sequences": np.int32(0)}, "num_return_sequences is 0"),
    ],
)
def test_what_is_wrong_with_a_request_is_said(run: Run, inputs: dict[str, Any], words: str) -> None:
    inputs = dict(inputs)
    prompt, tokens = inputs.pop("prompt", PROMPT), inputs.pop("max_tokens", 4)

    async def body(client: EngineClient) -> None:
        with pytest.raises(EngineError) as caught:
            await client.answer(request("tiny", prompt, tokens, **inputs))
        assert words in str(caught.value)
        if words.startswith(("presence_penalty", "temperature", "Requested beam width")):
            assert str(caught.value).endswith(" [INVALID_ARG]")  # no fault of the engine's
        assert len(await greedy(client, 4)) == 4  # nobody else is hurt

    run(body)


def test_a_prompt_longer_than_one_iteration_needs_chunked_context(run: Run) -> None:
    async def body(client: EngineClient) -> None:
        with pytest.raises(EngineError, match="set enable_chunked_context"):
            await client.answer(request("narrow", [5] * 65, 2))
        assert len((await client.answer(request("narrow", [5] * 64, 2))).ids) == 2
        assert len((await client.answer(request("tiny", [5] * 1500, 2))).ids) == 2  # chunked, 512 a step

    run(body)


def test_a_full_queue_refuses_and_the_rest_is_served(run: Run) -> None:
    async def body(client: EngineClient) -> None:
        # "narrow" runs one sequence and queues two: of three that come while one runs, one is too many
        running = client.stream(request("narrow", PROMPT, 900, streaming=True))
        await anext(aiter(running))
        tasks = [asyncio.create_task(client.answer(request("narrow", PROMPT, 2))) for _ in range(3)]
        done, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        (refused,) = done
        with pytest.raises(
            EngineError, match=r"(?i)maximum queue size"
        ):  # the engine's words, or Triton's own
            refused.result()
        running.cancel()
        assert [len((await task).ids) for task in waiting] == [2, 2]

    run(body)


def test_half_of_a_disaggregated_request_is_refused(run: Run) -> None:
    async def body(client: EngineClient) -> None:
        message = request("tiny", PROMPT, 4)
        message.parameters["request_type"].string_param = "context_only"
        with pytest.raises(EngineError, match="request_type 'context_only' cannot be honoured"):
            await client.answer(message)

    run(body)
