"""The LLM API's model: every input honoured or refused, calls as NVIDIA has them, streams whole."""

from __future__ import annotations

import ast
import asyncio
import importlib
import json
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.front_client import ask, request
from tests.support.plans import llm_plan, plan_of, spec_of
from tests.support.real_tokenizers import tokenizer_spec
from tritonclient.grpc import service_pb2_grpc

from trtbuild.catalog.versions import containers, interface, version_key
from trtbuild.repository.llmapi import llm_arguments
from trtbuild.repository.render import model_code
from trtbuild.repository.writer import write_repository
from trtbuild.spec import Target
from trtbuild_templates.llm_llmapi import jobs, words

FAKE = Path(__file__).parents[1] / "support" / "fake_trtllm"
PUBLISHED = json.loads((Path(__file__).parents[1] / "golden" / "llmapi" / "signatures.json").read_text())
VERSIONS = [container.interface for container in containers() if Target.LLMAPI in container.targets]


def published(version: str) -> dict[str, list[str]]:
    """Signatures of the newest release up to ``version`` whose reference NVIDIA published."""
    known = [known for known in PUBLISHED["versions"] if version_key(known) <= version_key(version)]
    found: dict[str, list[str]] = PUBLISHED["versions"][max(known, key=version_key)]
    return found


def tensors(ids: list[int], **inputs: Any) -> dict[str, Any]:
    """Inputs of a batch of one prompt, as the backend hands them over."""
    given: dict[str, Any] = {
        "input_ids": [ids],
        "input_lengths": [len(ids)],
        "request_output_len": [4],
        **inputs,
    }
    return {name: np.array(value) for name, value in given.items()}


def job(ids: list[int], **inputs: Any) -> jobs.Job:
    (found,) = jobs.read_jobs(tensors(ids, **inputs), exclude_input=True)
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_every_input_of_the_interface_is_handled(version: str) -> None:
    assert interface(version, "tensorrt_llm").input_names() <= jobs.HANDLED


@pytest.mark.parametrize("name", sorted(jobs._NOT_SERVED))
def test_an_input_that_is_not_served_is_refused_unless_it_changes_nothing(name: str) -> None:
    empty = np.zeros((1, 0), np.float32)
    neutral = next(
        value for value in (empty, *(np.array([n]) for n in (0, 1, 35))) if jobs._NOT_SERVED[name](value)
    )
    assert job([1, 2], **{name: neutral}).ids == [1, 2]
    with pytest.raises(jobs.Refused, match=name):
        job([1, 2], **{name: np.array([7.5])})


def test_an_unknown_input_is_refused() -> None:
    with pytest.raises(jobs.Refused, match="top_n_sigma is unknown"):
        job([1], top_n_sigma=[1.0])


@pytest.mark.parametrize("name", ["input_ids", "input_lengths", "request_output_len"])
def test_a_missing_input_is_named(name: str) -> None:
    given = tensors([1, 2])
    del given[name]
    with pytest.raises(jobs.Refused, match=f"{name} is missing"):
        jobs.read_jobs(given, exclude_input=True)


@pytest.mark.parametrize("length", [0, -1])
def test_no_tokens_are_refused(length: int) -> None:
    with pytest.raises(jobs.Refused, match="at least 1"):
        job([1], request_output_len=[length])
    with pytest.raises(jobs.Refused, match="empty"):
        job([1], input_lengths=[0])


def test_padding_behind_the_prompt_is_left_out() -> None:
    assert job([5, 6, 0, 0], input_lengths=[2]).ids == [5, 6]


def test_rows_of_a_batch_are_prompts_of_their_own() -> None:
    given = {
        "input_ids": np.array([[1, 2], [3, 0]]),
        "input_lengths": np.array([2, 1]),
        "request_output_len": np.array([4, 5]),
    }
    first, second = jobs.read_jobs(given, exclude_input=True)
    assert (first.row, first.ids, first.sampling["max_tokens"]) == (0, [1, 2], 4)
    assert (second.row, second.ids, second.sampling["max_tokens"]) == (1, [3], 5)


@pytest.mark.parametrize(
    ("inputs", "sampling"),
    [
        ({"runtime_top_k": [1], "temperature": [0.7], "runtime_top_p": [0.9]}, {"top_k": 1}),
        ({"temperature": [0.0]}, {"top_k": 1}),
        ({"runtime_top_k": [0], "runtime_top_p": [0.0], "temperature": [0.5]}, {"temperature": 0.5}),
        ({"runtime_top_k": [40], "seed": [7], "min_tokens": [2]}, {"top_k": 40, "seed": 7, "min_tokens": 2}),
        ({"end_id": [2], "pad_id": [0]}, {"end_id": 2, "pad_id": 0}),
        ({"end_id": [-1]}, {"ignore_eos": True}),
        ({"stop_words_list": [[[7, 8, 9], [1, 2, 3]]]}, {"stop_token_ids": [7, 8, 9]}),
        ({"bad_words_list": [[[7], [1]]]}, {"bad_token_ids": [7]}),
        ({"len_penalty": [2.0], "early_stopping": [True]}, {}),
        ({"return_log_probs": [True]}, {"logprobs": 1}),
    ],
)
def test_sampling_is_said_in_the_llm_apis_words(inputs: dict[str, Any], sampling: dict[str, Any]) -> None:
    assert job([1], **inputs).sampling == {"max_tokens": 4, **sampling}
    for signatures in PUBLISHED["versions"].values():
        assert set(sampling) <= set(signatures["SamplingParams"])


def test_a_bad_word_of_several_tokens_is_refused() -> None:
    with pytest.raises(jobs.Refused, match="several tokens"):
        job([1], bad_words_list=[[[7, 8], [2, -1]]])


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (b"json_schema", ("json_schema", "{}")),
        ("regex", ("regex", "{}")),
        (b"ebnf_grammar", ("ebnf_grammar", "{}")),
    ],
)
def test_a_guide_is_read(kind: Any, found: tuple[str, str]) -> None:
    given = job([1], guided_decoding_guide_type=[[kind]], guided_decoding_guide=[[b"{}"]])
    assert given.guide == found


def test_an_unknown_guide_is_refused() -> None:
    with pytest.raises(jobs.Refused, match="xml"):
        job([1], guided_decoding_guide_type=[[b"xml"]], guided_decoding_guide=[[b""]])


@given(st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=4), max_size=5), st.integers(0, 3))
def test_word_lists_are_read_back(expected: list[list[int]], padding: int) -> None:
    ids = [i for word in expected for i in word]
    ends = list(np.cumsum([len(word) for word in expected]))
    size = len(ids) + padding
    rows = np.array([ids + [0] * (size - len(ids)), [*ends, *[-1] * (size - len(ends))]]).reshape(2, size)
    assert words.read_words(rows) == [tuple(word) for word in expected]


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=30),
    st.lists(st.integers(0, 3), min_size=2, max_size=3),
    st.integers(1, 5),
)
def test_a_stop_word_is_found_wherever_responses_part_it(ids: list[int], word: list[int], step: int) -> None:
    stops = words.StopSequences([tuple(word)])
    ends = [end for end in range(1, len(ids) + 1) if ids[max(0, end - len(word)) : end] == word]
    found, seen = None, 0
    for end in range(step, len(ids) + step, step):
        found = stops.length_until_stop(ids[:end], seen)
        seen = min(end, len(ids))
        if found is not None:
            break
    assert found == (ends[0] if ends else None)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kv_dtype", ["auto", "fp8"])
def test_arguments_are_keywords_of_the_llm(version: str, kv_dtype: str) -> None:
    arguments = llm_arguments(llm_plan(kv_dtype=kv_dtype), version)
    signatures = published(version)
    assert set(arguments) <= set(signatures["LLM"])
    assert set(arguments["kv_cache_config"]) <= set(signatures["KvCacheConfig"])
    assert arguments["kv_cache_config"]["max_tokens"] == 160_000
    capped = arguments["kv_cache_config"].get("max_gpu_total_bytes")
    assert capped == (57_344 * 160_000 if version >= "1.1" else None)


@pytest.mark.parametrize("release", sorted(PUBLISHED["versions"]))
def test_what_is_read_of_an_answer_is_there_in_every_release(release: str) -> None:
    """Attributes of the LLM API's answers, as the package's code names them."""
    tree = ast.parse(model_code("llm_llmapi")["responses.py"])
    read: dict[str, set[str]] = {"output": set(), "part": set()}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in read:
            read[node.value.id].add(node.attr)
    signatures = PUBLISHED["versions"][release]
    for name, kind in (("output", "RequestOutput"), ("part", "CompletionOutput")):
        assert read[name]
        assert read[name] <= set(signatures[kind])
    assert {"json", "json_object", "regex", "grammar", "structural_tag"} <= set(
        signatures["GuidedDecodingParams"]
    )


@pytest.fixture
def progress(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """``responses`` of the package over the echoing engine: a function from a job to its responses."""
    utils = types.ModuleType("triton_python_backend_utils")
    utils.Tensor = lambda name, value: (name, value)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", utils)
    monkeypatch.syspath_prepend(str(FAKE))
    responses = importlib.import_module("trtbuild_templates.llm_llmapi.responses")
    engine = importlib.import_module("trtbuild_templates.llm_llmapi.engine")
    api = importlib.import_module("tensorrt_llm.llmapi")
    api.LLM.aborted = 0
    names = frozenset(row.name for row in interface("1.2.1", "tensorrt_llm").outputs)

    async def collect(running: Any, limit: int) -> list[tuple[dict[str, Any], bool]]:
        found = []
        async for given_tensors, last in running.responses():
            found.append((dict(given_tensors), last))
            if len(found) == limit:
                break
        return found

    def run(wanted: jobs.Job, limit: int = 1000) -> list[tuple[dict[str, Any], bool]]:
        llm = types.SimpleNamespace(generate_async=api.LLM.generate_async, calls=[])
        made = engine.LlmEngine(_bound(llm, api), api)
        return asyncio.run(collect(responses.Progress(wanted, names, made), limit))

    run.api = api  # type: ignore[attr-defined]
    yield run
    for name in [
        name for name in sys.modules if name.startswith(("tensorrt_llm", "trtbuild_templates.llm_llmapi."))
    ]:
        if not name.endswith((".jobs", ".words")):
            del sys.modules[name]


def _bound(llm: Any, api: Any) -> Any:
    return types.SimpleNamespace(
        generate_async=lambda *given_args, **options: api.LLM.generate_async(llm, *given_args, **options)
    )


def test_a_stream_gives_each_id_once_and_ends_once(progress: Any) -> None:
    found = progress(job([5, 6, 7], request_output_len=[7], streaming=[True]))
    assert [i for parts, _ in found for i in parts["output_ids"].reshape(-1)] == [5, 6, 7, 5, 6, 7, 5]
    assert [last for _, last in found] == [False] * 6 + [True]
    assert found[0][0]["output_ids"].shape == (1, 1, 1)
    assert found[0][0]["sequence_length"].tolist() == [[1]]


def test_without_streaming_there_is_one_response_with_the_prompt_where_asked_for(progress: Any) -> None:
    ((parts, last),) = progress(job([5, 6], request_output_len=[3]))
    assert (parts["output_ids"].tolist(), last) == ([[[5, 6, 5]]], True)
    ((parts, _),) = progress(job([5, 6], request_output_len=[3], exclude_input_in_output=[False]))
    assert parts["output_ids"].tolist() == [[[5, 6, 5, 6, 5]]]
    assert parts["sequence_length"].tolist() == [[5]]


@pytest.mark.parametrize("streaming", [True, False])
def test_a_stop_word_of_two_tokens_ends_and_aborts(progress: Any, streaming: bool) -> None:
    wanted = job(
        [5, 6, 7], request_output_len=[9], streaming=[streaming], stop_words_list=[[[7, 5], [2, -1]]]
    )
    found = progress(wanted)
    assert [i for parts, _ in found for i in parts["output_ids"].reshape(-1)] == [5, 6, 7, 5]
    assert [last for _, last in found][-1]
    assert progress.api.LLM.aborted == 1


def test_sequences_are_told_apart_and_the_last_to_end_ends_the_request(progress: Any) -> None:
    two = {"num_return_sequences": [2], "runtime_top_k": [5], "end_id": [6]}
    wanted = job([5, 6], request_output_len=[3], streaming=[True], **two)
    found = progress(wanted)
    ids: dict[int, list[int]] = {0: [], 1: []}
    for parts, _ in found:
        ids[int(parts["sequence_index"][0, 0])] += parts["output_ids"].reshape(-1).tolist()
    assert ids == {0: [5, 6], 1: [6]}  # sequence 1 begins with the end id
    assert [last for _, last in found] == [False, False, True]


def test_counts_and_log_probs_come_when_asked_for(progress: Any) -> None:
    asked = {f"return_{name}": [True] for name in ("log_probs", "num_input_tokens", "num_output_tokens")}
    ((parts, _),) = progress(job([5, 6], request_output_len=[2], **asked))
    assert parts["num_input_tokens"].tolist() == [[2]]
    assert parts["num_output_tokens"].tolist() == [[2]]
    assert parts["output_log_probs"].tolist() == [[[-0.5, -0.5]]]
    assert parts["cum_log_probs"].tolist() == [[-1.0]]
    ((parts, _),) = progress(job([5, 6]))
    assert not {"num_input_tokens", "output_log_probs", "cum_log_probs"} & set(parts)


def test_leaving_early_aborts_in_the_engine(progress: Any) -> None:
    assert len(progress(job([5, 6], request_output_len=[9], streaming=[True]), limit=2)) == 2
    assert progress.api.LLM.aborted == 1


def test_what_the_llm_api_refuses_is_refused_with_its_words(progress: Any) -> None:
    with pytest.raises(jobs.Refused, match="Greedy decoding"):
        progress(job([5], num_return_sequences=[2], runtime_top_k=[1]))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A repository for the target llmapi in a real tritonserver, over the echoing engine."""
    from trtbuild.serve import container
    from trtbuild.serve.server import start

    folder = tmp_path_factory.mktemp("llmapi")
    texts = folder / "tokenizer"
    texts.mkdir()
    (texts / "tokenizer.json").write_text(json.dumps(tokenizer_spec("smollm2")))
    plan = plan_of(llm_plan("m", quant="fp16", vocab_size=49152, max_queue_size=0), target=Target.LLMAPI)
    repo = folder / "repository"
    write_repository(plan, spec_of(*plan.models), repo, text_assets={"m": texts}, weights={})
    checkpoint = repo / "m_engine" / "1" / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "config.json").write_text("{}")
    (repo / "m_engine" / "1" / "tensorrt_llm").symlink_to(FAKE / "tensorrt_llm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAKE_TRTLLM_STEP_S", "0.002")
        patch.setattr(container, "serves_on_gpu", lambda repository: False)  # the engine here needs none
        patch.setenv("FAKE_TRTLLM_ABORTED", str(folder / "aborted"))
        with start(repo) as server:
            yield types.SimpleNamespace(grpc_address=server.grpc_address, aborted=folder / "aborted")


@pytest.mark.server
def test_the_front_streams_over_it(served: Any) -> None:
    text = "one two three four"
    responses = ask(served.grpc_address, "m", text_input=text, max_tokens=4, stream=True)
    assert "".join(response.get("text_output", "") for response in responses) == text
    assert responses[-1]["finish_reason"] == "length"
    assert responses[-1]["num_output_tokens"] == 4


@pytest.mark.server
def test_the_classic_ensemble_runs_over_it(served: Any) -> None:
    asked = {"outputs": ("text_output",), "text_input": "one two", "max_tokens": 2, "stream": True}
    responses = ask(served.grpc_address, "m_ensemble", **asked)
    assert "".join(response.get("text_output", "") for response in responses) == "one two"


@pytest.mark.server
def test_a_refused_request_leaves_the_others_running(served: Any) -> None:
    asked = {"outputs": ("text_output",), "text_input": "one", "max_tokens": 2, "beam_width": 4}
    (refused,) = ask(served.grpc_address, "m_ensemble", **asked)
    assert "beam_width is not served" in refused["error"]
    (answer,) = ask(served.grpc_address, "m", text_input="one two", max_tokens=2)
    assert answer["text_output"] == "one two"


@pytest.mark.server
def test_answers_that_end_at_once_leave_the_server_running(served: Any) -> None:
    """Asking a sender whether its client is there, once its final response is out, ends the server."""
    asked = {"outputs": ("text_output",), "text_input": "one", "max_tokens": 1}
    for _ in range(300):
        (refused,) = ask(served.grpc_address, "m_ensemble", **asked, beam_width=4)
        assert "beam_width" in refused["error"]
        assert any("text_output" in response for response in ask(served.grpc_address, "m_ensemble", **asked))


@pytest.mark.server
def test_a_client_that_leaves_ends_its_request_in_the_engine(served: Any) -> None:
    endless = request("m", text_input="one two three", max_tokens=500, stream=True)
    with grpc.insecure_channel(served.grpc_address) as channel:
        call = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(iter([endless]))
        next(call)
        call.cancel()
    deadline = time.monotonic() + 20
    while not served.aborted.exists() and time.monotonic() < deadline:
        time.sleep(0.05)  # another process tells it by a file
    assert served.aborted.read_text() == "aborted\n"
