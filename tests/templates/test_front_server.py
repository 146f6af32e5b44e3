"""The text front in a real tritonserver, over an engine that answers with the prompt's own tokens."""

from __future__ import annotations

import asyncio
import json
import random
import time
import urllib.request
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.support.front_client import USUAL, FrontClient, ask, read, request
from tests.support.real_tokenizers import tokenizer, tokenizer_spec

from tritonstream import Client, Degrade, Retry
from trtbuild.measure.instant_repository import write_instant_repository
from trtbuild.serve.server import Server, start

pytestmark = [pytest.mark.server, pytest.mark.alone]

TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
FAULTS = {
    "at once": 1, "after three": 2, "never": 3, "final apart": 4, "traceback": 5, "by three": 6, "padded": 7,
}  # fmt: skip


@dataclass
class Running:
    server: Server

    def ask(self, model: str = "fast", **inputs: Any) -> list[dict[str, Any]]:
        return ask(self.server.grpc_address, model, **inputs)

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://{self.server.metrics_address}/metrics", timeout=10) as answer:
            return str(answer.read().decode())


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Fronts: ``fast``; ``paced`` (20 ms a token), which counts prefixes; ``full``, for two requests at once;
    ``lost``, whose engine does not exist."""
    folder = tmp_path_factory.mktemp("front")
    texts = folder / "tokenizer"
    texts.mkdir()
    (texts / "tokenizer.json").write_text(json.dumps(tokenizer_spec("smollm2")))
    config = {"eos_token": "<|im_end|>", "pad_token": "<|im_end|>", "bos_token": "<|im_start|>"}
    (texts / "tokenizer_config.json").write_text(json.dumps(config))
    (texts / "generation_config.json").write_text('{"eos_token_id": [2, 0]}')
    (texts / "chat_template.jinja").write_text(TEMPLATE)
    repository = folder / "repository"
    write_instant_repository(repository, texts, name="fast")
    reuse = {"tokens_per_block": "4", "kv_tokens": "400"}
    write_instant_repository(repository, texts, name="paced", step_ms=20, parameters=reuse)
    write_instant_repository(
        repository, texts, name="full", parameters={"engine_model": "fast_engine", "max_requests": "2"}
    )
    write_instant_repository(repository, texts, name="lost", parameters={"engine_model": "nowhere"})
    with start(repository) as server:
        yield Running(server)


def _ids(text: str) -> list[int]:
    ids: list[int] = tokenizer("smollm2").encode(text).ids
    return ids


def test_a_stream_is_the_text_and_ends_once(running: Running) -> None:
    text = "Grüße 👨‍👩‍👧 你好 "
    count = len(_ids(text))
    outputs = (*USUAL, "text_crc32")
    responses = running.ask(outputs=outputs, text_input=text, max_tokens=2 * count, stream=True)
    assert "".join(response.get("text_output", "") for response in responses) == text * 2
    assert responses[-1]["text_crc32"] == zlib.crc32((text * 2).encode())
    assert [response["final"] for response in responses] == [False] * (len(responses) - 1) + [True]
    assert all(response["text_output"] for response in responses[:-1])
    assert all("finish_reason" not in response for response in responses[:-1])
    last = responses[-1]
    assert (last["finish_reason"], last["num_input_tokens"], last["num_output_tokens"]) == (
        "length",
        count,
        2 * count,
    )


def test_without_stream_there_is_one_response(running: Running) -> None:
    (response,) = running.ask(text_input="one two three", max_tokens=3)
    assert response["text_output"] == "one two three"
    assert response["finish_reason"] == "length"


def test_http_generate_works_on_a_decoupled_front(running: Running) -> None:
    body = json.dumps({"text_input": "one two", "max_tokens": 2}).encode()
    url = f"http://{running.server.http_address}/v2/models/fast/generate"
    with urllib.request.urlopen(urllib.request.Request(url, body), timeout=30) as answer:
        assert json.load(answer)["text_output"] == "one two"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("stops", [["s is"], ["zzz", "ld this"], ["s is n", "orld"], ["nice"]])
def test_stop_strings_span_tokens(running: Running, stops: list[str], stream: bool) -> None:
    text = "Hello world this is nice"
    responses = running.ask(text_input=text, max_tokens=50, stop_words=stops, stream=stream)
    expected = min((text.split(stop)[0] for stop in stops if stop in text), key=len)
    assert "".join(response["text_output"] for response in responses) == expected
    assert responses[-1]["finish_reason"] == "stop"
    assert responses[-1]["num_output_tokens"] < 50


def test_every_end_id_ends_and_is_not_text(running: Running) -> None:
    for end in ("<|im_end|>", "<|endoftext|>"):
        outputs = ("text_output", "finish_reason", "token_ids", "num_output_tokens")
        (response,) = running.ask(text_input=f"a b{end} c", max_tokens=50, outputs=outputs)
        assert response["text_output"] == "a b"
        assert response["finish_reason"] == "stop"
        assert response["token_ids"] == _ids("a b")
        assert response["num_output_tokens"] == len(_ids("a b")) + 1


def test_a_special_token_as_stop_word_is_an_end_id(running: Running) -> None:
    (response,) = running.ask(text_input="a b<|im_start|> c", max_tokens=50, stop_words=["<|im_start|>"])
    assert (response["text_output"], response["finish_reason"]) == ("a b", "stop")


def test_an_end_id_of_the_request_replaces_the_models(running: Running) -> None:
    (response,) = running.ask(text_input="a<|im_end|> b", max_tokens=3, end_id=-1)
    assert (response["text_output"], response["finish_reason"]) == ("a b", "length")


def test_end_ids_wait_for_min_tokens(running: Running) -> None:
    (response,) = running.ask(text_input="a<|endoftext|> b", max_tokens=6, min_tokens=4)
    # the second <|endoftext|> is the fifth token
    assert (response["text_output"], response["num_output_tokens"]) == ("a ba", 5)


def test_chat_goes_through_the_models_template(running: Running) -> None:
    messages = json.dumps([{"role": "user", "content": "Hi there"}])
    (response,) = running.ask(messages=messages, max_tokens=7, end_id=-1)
    assert response["text_output"] == "user\nHi there\n"
    assert response["num_input_tokens"] == len(_ids("<|im_start|>user\nHi there<|im_end|>\n"))


def test_the_prompt_comes_first_when_asked_for(running: Running) -> None:
    responses = running.ask(text_input="one two", max_tokens=2, exclude_input_in_output=False, stream=True)
    assert "".join(response["text_output"] for response in responses) == "one twoone two"


def test_several_texts_come_in_one_response(running: Running) -> None:
    (response,) = running.ask(text_input="one two", max_tokens=2, beam_width=3)
    assert response["text_output"] == ["one two"] * 3
    assert response["finish_reason"] == ["length"] * 3


@pytest.mark.parametrize(
    ("inputs", "named"),
    [
        ({"text_input": b"a\xff"}, "text_input is not UTF-8: byte 0xff at offset 1"),
        ({"text_input": ""}, "the prompt is empty"),
        ({"max_tokens": 3}, "neither text_input nor messages"),
        ({"text_input": "a", "messages": "[]"}, "both given"),
        ({"messages": "[]"}, "messages is empty"),
        ({"messages": "{"}, "messages is not JSON"),
        ({"messages": '[{"role": "user", "content": "\\ud800"}]'}, "lone surrogate"),
        ({"text_input": "a", "max_tokens": 0}, "max_tokens is 0; it must be at least 1"),
        ({"text_input": "a", "max_tokens": -5}, "max_tokens is -5"),
        ({"text_input": "a " * 3000}, "tokens, more than the 2048 that fit"),
        ({"text_input": "a" * 3_000_000}, "more than the 2048 that fit"),
        ({"text_input": "a", "stop_words": ["x" * 5000]}, "stop_words holds 1 words of 5000 characters"),
        ({"text_input": "a", "stream": True, "beam_width": 2}, "cannot be streamed at once"),
        ({"text_input": "a", "embedding_bias_words": ["a"]}, "1 embedding_bias_words but 0"),
        ({"text_input": "a", "repetition_penalty": 1.5}, "unexpected inference input 'repetition_penalty'"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(running: Running, inputs: Any, named: str) -> None:
    (response,) = running.ask(**inputs)
    assert named in response["error"]
    assert "\n" not in response["error"]
    assert "Traceback" not in response["error"]


def test_a_long_answer_is_cut_where_the_engine_ends(running: Running) -> None:
    (response,) = running.ask(text_input="a " * 2000, max_tokens=100_000, timeout_s=120)
    assert response["num_input_tokens"] + response["num_output_tokens"] == 4096
    assert response["finish_reason"] == "length"


def test_zero_temperature_is_the_likeliest_token(running: Running) -> None:
    (response,) = running.ask(text_input="a", max_tokens=1, temperature=0.0)
    assert response["text_output"] == "a"


@pytest.mark.parametrize("fault", ["final apart", "by three", "padded"])
def test_engines_differ_in_their_messages(running: Running, fault: str) -> None:
    responses = running.ask(text_input="one two three four", max_tokens=8, stream=True, seed=FAULTS[fault])
    assert "".join(response["text_output"] for response in responses) == "one two three four" * 2
    assert responses[-1]["num_output_tokens"] == 8


def test_an_engines_error_reaches_the_client_as_one_line(running: Running) -> None:
    said = {
        "at once": "out of blocks",
        "after three": "out of blocks",
        "traceback": "the server's log says why",
    }
    for fault, reason in said.items():
        *before, last = running.ask(text_input="a b c d e", max_tokens=9, stream=True, seed=FAULTS[fault])
        assert reason in last["error"]
        assert "\n" not in last["error"]
        assert "File" not in last["error"]
        assert "error" not in str(before)


def test_a_missing_engine_is_named(running: Running) -> None:
    (response,) = running.ask("lost", text_input="a")
    assert "nowhere" in response["error"]


def test_a_deadline_gives_what_there_is(running: Running) -> None:
    begun_s = time.monotonic()
    responses = running.ask("paced", text_input="one two three", max_tokens=500, stream=True, timeout_ms=300)
    assert responses[-1]["finish_reason"] == "deadline"
    assert 0 < responses[-1]["num_output_tokens"] < 30
    assert time.monotonic() - begun_s < 3
    (never,) = running.ask(text_input="a", seed=FAULTS["never"], timeout_ms=100)
    assert (never["finish_reason"], never["text_output"]) == ("deadline", "")


def _live_engine_requests(metrics: str, model: str) -> float:
    for line in metrics.splitlines():
        if line.startswith(f'nv_inference_pending_request_count{{model="{model}"'):
            return float(line.split()[-1])
    return 0.0


@pytest.mark.parametrize("before_first", [True, False])
def test_a_client_that_leaves_ends_the_engines_work(running: Running, before_first: bool) -> None:
    async def run() -> None:
        async with FrontClient(running.server.grpc_address) as client:
            fault = {"seed": FAULTS["never"]} if before_first else {}
            call = client.call(request("paced", text_input="a b c", max_tokens=3000, stream=True, **fault))
            if not before_first:
                assert read(await call.read())["text_output"]
            else:
                await asyncio.sleep(0.2)
            call.cancel()

    ended = 'trtbuild_requests_total{model="paced",class="default",reason="cancelled"}'
    before = _value(running.metrics(), ended)
    asyncio.run(run())
    deadline_s = time.monotonic() + 20
    while _value(running.metrics(), ended) <= before:
        assert time.monotonic() < deadline_s, "the cancel did not arrive"
        time.sleep(0.1)
    # the engine has room again: a short request is served while nothing else is live
    assert running.ask("paced", text_input="a", max_tokens=1)[-1]["finish_reason"] == "length"


def _value(metrics: str, series: str) -> float:
    name, _, rest = series.partition("{")
    wanted = set(rest.rstrip("}").split(","))
    for line in metrics.splitlines():
        if line.startswith(name + "{"):
            labels, _, value = line[len(name) + 1 :].partition("} ")
            if set(labels.split(",")) == wanted:
                return float(value)
    return 0.0


def test_counts_and_times_are_exported(running: Running) -> None:
    tokens = 'trtbuild_tokens_total{model="fast",class="default",kind="output"}'
    before = _value(running.metrics(), tokens)
    running.ask(text_input="one two three", max_tokens=30, stream=True)
    deadline_s = time.monotonic() + 20
    while (now := _value(running.metrics(), tokens)) < before + 30:
        assert time.monotonic() < deadline_s, f"{before} → {now}"
        time.sleep(0.2)
    text = running.metrics()
    assert _value(text, 'trtbuild_ttft_seconds_bucket{model="fast",class="default",le="20"}') >= 1
    assert _value(text, 'trtbuild_ttft_seconds_count{model="fast",class="default"}') == _value(
        text, 'trtbuild_ttft_seconds_bucket{model="fast",class="default",le="+Inf"}'
    )


def test_classes_of_traffic_and_degrade_steps_are_counted_apart(running: Running) -> None:
    def generate(parameters: bytes) -> str:
        body = b'{"text_input": "one two", "max_tokens": 2, ' + parameters + b"}"
        url = f"http://{running.server.http_address}/v2/models/fast/generate"
        with urllib.request.urlopen(urllib.request.Request(url, body), timeout=30) as answer:
            return str(json.load(answer)["text_output"])

    with Client(running.server.grpc_address, traffic_class="interactive") as client:
        chain = [Degrade(max_tokens=9), Degrade(model="fast")]
        answer = client.generate("lost", "one two", max_tokens=2, retry=Retry(1), degrade=chain)
        assert (answer.text, answer.degraded) == ("one two", True)
    nonsense = (b'"traffic_class": "a \\"b\\""', b'"traffic_class": 7, "degrade_step": "x"')
    for parameters in (b'"traffic_class": "batch"', *nonsense):
        assert generate(parameters) == "one two"
    assert generate(b'"traffic_class": "\xff"') == "one two"  # no UTF-8, so that nothing of it can be read
    expected = {
        'trtbuild_degraded_requests_total{model="lost",class="interactive",step="1"}': 1,
        'trtbuild_degraded_requests_total{model="fast",class="interactive",step="2"}': 1,
        'trtbuild_requests_total{model="lost",class="interactive",reason="error"}': 2,
        'trtbuild_tokens_total{model="fast",class="interactive",kind="output"}': 2,
        'trtbuild_tokens_total{model="fast",class="batch",kind="output"}': 2,
        'trtbuild_tokens_total{model="fast",class="other",kind="output"}': 4,
    }
    deadline_s = time.monotonic() + 20
    while (found := {series: _value(running.metrics(), series) for series in expected}) != expected:
        assert time.monotonic() < deadline_s, found
        time.sleep(0.2)
    assert running.metrics().count("\ntrtbuild_degraded_requests_total{") == 2


def test_prompts_that_begin_alike_are_counted(running: Running) -> None:
    for _ in range(2):
        running.ask("paced", text_input="one two three four five six seven eight nine", max_tokens=1)
    deadline_s = time.monotonic() + 20
    while _value(running.metrics(), 'trtbuild_prefix_tokens_total{model="paced",class="default"}') < 8:
        assert time.monotonic() < deadline_s
        time.sleep(0.2)


def test_more_requests_than_are_planned_are_refused_until_some_end(running: Running) -> None:
    async def run() -> dict[str, Any]:
        async with FrontClient(running.server.grpc_address) as client:
            stuck = {"text_input": "a b c", "max_tokens": 9, "stream": True, "seed": FAULTS["never"]}
            calls = [client.call(request("full", **stuck)) for _ in range(3)]
            reads = [asyncio.ensure_future(call.read()) for call in calls]
            answered, _ = await asyncio.wait(reads, timeout=20, return_when=asyncio.FIRST_COMPLETED)
            for call in calls:
                call.cancel()
            await asyncio.wait(reads)
            (refused,) = answered
            return read(refused.result())

    assert "2 requests run or wait already; try again later [UNAVAILABLE]" in asyncio.run(run())["error"]
    deadline_s = time.monotonic() + 20
    while "error" in running.ask("full", text_input="a", max_tokens=1)[-1]:
        assert time.monotonic() < deadline_s, "the requests that were cancelled still count"
        time.sleep(0.05)


async def _burst(client: FrontClient, number: int, width: int, chance: random.Random) -> dict[str, int]:
    outcomes: dict[str, int] = {}

    async def one(index: int) -> str:
        text, limit = f"request {number} {index} says so.", chance.randrange(1, 24)
        leave = chance.choice([None, None, None, 0, 1, limit])
        call = client.call(request("fast", text_input=text, max_tokens=limit, stream=True))
        got, responses = "", 0
        if leave == 0:
            await asyncio.sleep(chance.random() * 0.02)
            call.cancel()
            return "cancelled"
        async for message in call:
            response = read(message)
            if "error" in response:
                return f"error {response['error']}"
            got, responses = got + response["text_output"], responses + 1
            if response["final"]:
                whole = (text * 9)[: len(got)]
                return (
                    "complete"
                    if got == whole and response["num_output_tokens"] == limit
                    else f"mixed {got!r}"
                )
            if leave is not None and responses >= leave:
                call.cancel()
                return "cancelled"
        return "no end"

    for outcome in await asyncio.wait_for(asyncio.gather(*(one(index) for index in range(width))), 120):
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    return outcomes


@pytest.mark.parametrize(
    "bursts", [8, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])]
)
def test_streams_that_end_together_with_cancels_neither_hang_nor_mix(running: Running, bursts: int) -> None:
    chance = random.Random(7)

    async def run() -> dict[str, int]:
        total: dict[str, int] = {}
        async with FrontClient(running.server.grpc_address) as client:
            for number in range(bursts):
                for outcome, count in (await _burst(client, number, 100, chance)).items():
                    total[outcome] = total.get(outcome, 0) + count
        return total

    total = asyncio.run(run())
    assert set(total) == {"complete", "cancelled"}, total
    assert sum(total.values()) == 100 * bursts
