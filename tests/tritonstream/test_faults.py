"""What goes wrong between client and server: a typed error in time, nothing hangs, no word comes twice."""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tritonstream import (
    BetweenTokensTimeout,
    ConnectError,
    ConnectionLost,
    ConnectTimeout,
    Finish,
    FirstTokenTimeout,
    InvalidRequest,
    MessageTooLarge,
    ModelKind,
    ModelNotFound,
    ModelNotReady,
    Overloaded,
    ProtocolError,
    Retry,
    ServerError,
    TextDelta,
    Timeouts,
    Tls,
    TotalTimeout,
    TransportError,
    TritonStreamError,
    Unavailable,
    UnsupportedError,
)
from tritonstream.testing import FakeModel, FakeTriton, Fault

ONCE = Retry(attempts=1)
WORDS = ["a", "b", "c", "d"]


def failure(
    run: Any, url: str, model: str = "llm", **options: Any
) -> tuple[TritonStreamError, list[str], float]:
    """Streams from a model that fails; returns the error, the text until then, and how long it took (s)."""
    params = options.pop("params", {"max_tokens": 100})
    options.setdefault("retry", ONCE)

    async def body(client: Any) -> Any:
        pieces: list[str] = []

        async def read() -> None:
            async for piece in client.stream(model, "x", **params).text_deltas():
                pieces.append(piece)  # noqa: PERF401  (what came before the failure counts)

        await client.describe(model)
        begun = time.monotonic()
        with pytest.raises(TritonStreamError) as caught:
            await read()
        return caught.value, pieces, time.monotonic() - begun

    return run(body, url, **options)  # type: ignore[no-any-return]


def test_an_error_in_the_middle_has_the_servers_words_and_the_text_so_far(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel(reply=WORDS, faults=[Fault("error", 2, message="CUDA went away")]))
    error, pieces, _ = failure(run, server.url)
    assert isinstance(error, ServerError)
    assert "CUDA went away" in str(error)
    assert (error.model, error.endpoint, error.code) == ("llm", server.url, "INTERNAL")
    assert error.request_id == server.served[0].request_id
    assert pieces == ["a", "b"]
    assert error.partial is not None
    assert error.partial.text == "ab"


@pytest.mark.parametrize(("version", "asked"), [("2.51.0", False), ("2.67.0", False), ("2.68.0", True)])
def test_codes_are_not_asked_of_servers_that_an_error_could_end(
    run: Any, serve: Any, version: str, asked: bool
) -> None:
    server = serve(llm=FakeModel())
    server.version = version

    async def body(client: Any) -> None:
        await client.generate("llm", "x")

    run(body, server.url)
    assert ("triton_grpc_error" in server.served[0].headers) is asked


@pytest.mark.parametrize(
    ("code", "kind", "tries"), [("INVALID_ARG", InvalidRequest, 1), ("UNAVAILABLE", Unavailable, 2)]
)
def test_the_fronts_own_codes_are_read_where_the_server_gives_none(
    run: Any, serve: Any, code: str, kind: type[Exception], tries: int
) -> None:
    server = serve(llm=FakeModel(faults=[Fault("error", 0, message=f"no room [{code}]")]))
    server.version, server.coded_errors = "2.51.0", False
    error, _, _ = failure(run, server.url, retry=Retry(attempts=2, base_wait_s=0.01))
    assert type(error) is kind
    assert error.message == "no room"
    assert len(server.served) == tries


def test_servers_before_24_09_send_errors_as_text_and_leave_the_stream_open(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel(reply=WORDS, faults=[Fault("error", 1, message="bad luck")]))
    server.version, server.coded_errors = "2.44.0", False
    error, pieces, seconds = failure(run, server.url)
    assert type(error) is ServerError
    assert error.message == "bad luck"
    assert pieces == ["a"]
    assert seconds < 10


def test_an_input_that_a_reloaded_model_no_longer_has_is_unsupported(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel())

    async def body(client: Any) -> None:
        await client.describe("llm")
        server.models["llm"].without = frozenset({"seed"})  # reloaded with other inputs meanwhile
        with pytest.raises(UnsupportedError, match="has no input for 'seed'"):
            await client.generate("llm", "x", seed=1)
        server.models["llm"].without = frozenset()
        await client.generate("llm", "x", seed=1)

    run(body, server.url)
    assert server.calls["ModelConfig"] == 3  # known, contradicted, and once more since it may change again


def test_a_stream_that_ends_without_a_final_flag_is_whole(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel(reply=WORDS, faults=[Fault("no_final")]))

    async def body(client: Any) -> None:
        assert (await client.generate("llm", "x")).text == "abcd"

    run(body, server.url)


def test_a_stream_without_a_final_flag_that_stays_open_ends_with_a_limit(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel(reply=WORDS, faults=[Fault("linger")]))
    error, pieces, seconds = failure(run, server.url, timeouts=Timeouts(between_tokens_s=0.2))
    assert isinstance(error, BetweenTokensTimeout)
    assert pieces == WORDS
    assert seconds < 10


def test_a_final_flag_ends_it_though_the_stream_stays_open(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel(reply=WORDS, faults=[Fault("open_end")]))

    async def body(client: Any) -> float:
        begun = time.monotonic()
        assert (await client.generate("llm", "x")).text == "abcd"
        return time.monotonic() - begun

    assert run(body, server.url) < 10
    assert server.wait_for(lambda: server.active() == 0)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault("foreign_id", 1), ProtocolError),
        (Fault("wrong_dtype", 1), ProtocolError),
        (Fault("cut", 1), ProtocolError),
        (Fault("late"), ProtocolError),
        (Fault("duplicate", 3), ProtocolError),  # the last: a response after the final one
        (Fault("reorder", 2), ProtocolError),
        (Fault("drop", 2), TransportError),
    ],
    ids=lambda value: value.kind if isinstance(value, Fault) else "",
)
def test_responses_that_cannot_be_right_are_not_believed(
    run: Any, serve: Any, fault: Fault, error: type[Exception]
) -> None:
    server = serve(llm=FakeModel(reply=WORDS, faults=[fault]))
    if fault.kind == "drop":
        server.models["llm"].faults = [Fault("die", 2)]
    found, pieces, _ = failure(run, server.url)
    assert isinstance(found, error)
    assert len(pieces) < len(WORDS) or fault.kind in ("late", "duplicate")


@pytest.mark.parametrize(
    ("kind", "at"),
    [*itertools.product(("lose", "duplicate"), range(4)), *(("reorder", at) for at in range(3))],
)
def test_a_fronts_responses_are_all_there_once_and_in_order(run: Any, serve: Any, kind: Any, at: int) -> None:
    server = serve(llm=FakeModel(reply=WORDS, faults=[Fault(kind, at, times=1)]))

    async def body(client: Any) -> None:
        with pytest.raises(ProtocolError) as caught:
            await client.generate("llm", "x", retry=ONCE)
        assert caught.value.partial is not None
        assert (await client.generate("llm", "x")).text == "abcd"
        assert (await client.generate("llm", "x", n=3)).choices[2].text == "abcd"

    run(body, server.url)


def test_more_tokens_than_were_allowed_were_doubled(run: Any, serve: Any) -> None:
    engine = FakeModel(kind=ModelKind.ENGINE, reply=[5, 6, 7, 8], faults=[Fault("duplicate", 1)])
    server = serve(engine=engine)

    async def body(client: Any) -> None:
        with pytest.raises(ProtocolError, match="5 tokens came where 4 were allowed"):
            await client.generate("engine", [1], max_tokens=4, retry=ONCE)

    run(body, server.url)


def test_lost_and_doubled_tokens_are_noticed_where_ids_are_asked_for(run: Any, serve: Any) -> None:
    fault, without = Fault("duplicate", 1, times=1), frozenset({"text_crc32"})
    server = serve(llm=FakeModel(reply=WORDS, faults=[fault], without=without))

    async def body(client: Any) -> None:
        with pytest.raises(ProtocolError, match="counts 4 tokens and sent 5"):
            await client.generate("llm", "x", token_ids=True)
        assert len((await client.generate("llm", "x", token_ids=True)).token_ids) == 4

    run(body, server.url)


def test_a_server_that_dies_in_the_middle(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel(reply=["x"] * 1000, between_tokens_s=0.005))

    async def body(client: Any) -> None:
        stream = client.stream("llm", "x")
        assert await anext(aiter(stream)) == TextDelta("x")
        await asyncio.to_thread(server.kill)
        with pytest.raises(ConnectionLost) as caught:
            await stream.result()
        assert caught.value.partial is not None
        assert caught.value.partial.text.startswith("x")
        with pytest.raises(TransportError):
            await client.generate("llm", "x", retry=ONCE)
        server.models["llm"].reply = ["back"]
        await asyncio.to_thread(server.revive)
        assert (await client.generate("llm", "x")).text == "back"

    run(body, server.url)


def test_nobody_listens(run: Any) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    async def body(client: Any) -> float:
        begun = time.monotonic()
        with pytest.raises(ConnectError, match=rf"127\.0\.0\.1:{port}"):
            await client.generate("llm", "x")
        assert not await client.is_ready()
        return time.monotonic() - begun

    assert run(body, f"127.0.0.1:{port}") < 8


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts connections and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_port_that_never_answers_is_a_connect_timeout(run: Any, silent_port: int) -> None:
    async def body(client: Any) -> float:
        begun = time.monotonic()
        with pytest.raises(ConnectTimeout, match="connect_s"):
            await client.generate("llm", "x")
        return time.monotonic() - begun

    timeouts = Timeouts(connect_s=0.3)
    assert run(body, f"127.0.0.1:{silent_port}", timeouts=timeouts, retry=ONCE) < 2


def test_tls_to_a_plain_server_is_a_connect_error(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel())

    async def body(client: Any) -> None:
        with pytest.raises((ConnectError, ConnectTimeout)):
            await client.generate("llm", "x", deadline_s=5)

    run(body, server.url, tls=True, retry=ONCE)


def test_plain_to_a_tls_server_and_tls_with_its_certificate(
    run: Any, certificate: tuple[bytes, bytes]
) -> None:
    key, chain = certificate
    import grpc

    with FakeTriton({"llm": FakeModel()}, credentials=grpc.ssl_server_credentials([(key, chain)])) as server:

        async def refused(client: Any) -> None:
            with pytest.raises((ConnectError, ConnectTimeout)):
                await client.generate("llm", "x", deadline_s=5)

        run(refused, server.url, retry=ONCE)

        async def works(client: Any) -> None:
            assert (await client.generate("llm", "x")).text == "Hello, world!"

        run(works, server.url, tls=Tls(root_certificates=chain, server_name="localhost"))


def test_a_model_that_is_not_there(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel())

    async def body(client: Any) -> None:
        with pytest.raises(ModelNotFound, match="unknown model"):
            await client.generate("nothing", "x")
        with pytest.raises(ModelNotFound):
            await client.describe("nothing")

    run(body, server.url)


def test_a_model_that_is_not_ready_or_is_unloaded_between_requests(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel(), api=FakeModel(kind=ModelKind.LLMAPI, decoupled=False))

    async def body(client: Any) -> None:
        for name in ("llm", "api"):
            await client.generate(name, "x", max_tokens=5)
            server.models[name].ready = False
            with pytest.raises(ModelNotReady):
                await client.generate(name, "x", max_tokens=5)
            assert not await client.is_ready(name)
            model = server.models.pop(name)
            with pytest.raises(ModelNotFound):
                await client.generate(name, "x", max_tokens=5)
            server.models[name], model.ready = model, True
            await client.generate(name, "x", max_tokens=5)

    run(body, server.url, retry=ONCE)


def test_large_messages_pass_in_both_directions(run: Any, serve: Any) -> None:
    large = "x" * (5 << 20)
    server = serve(llm=FakeModel(reply=lambda inputs: [inputs["text_input"]]))

    async def body(client: Any) -> None:
        assert (await client.generate("llm", large)).text == large

    run(body, server.url)


def test_a_message_over_the_servers_limit_is_named_so(run: Any) -> None:
    with FakeTriton({"llm": FakeModel()}, max_message_bytes=4 << 20) as server:

        async def body(client: Any) -> None:
            with pytest.raises(MessageTooLarge, match="the request has 524"):
                await client.generate("llm", "x" * (5 << 20))
            await client.generate("llm", "x")

        run(body, server.url)
    assert server.calls["ModelStreamInfer"] == 2  # not retried: it stays as large


def test_a_decoupled_model_that_was_not_decoupled_before(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel(kind=ModelKind.BLS, decoupled=False))

    async def body(client: Any) -> None:
        await client.generate("llm", "x", max_tokens=5)
        server.models["llm"].decoupled = True
        assert (await client.generate("llm", "x", max_tokens=5)).text == "Hello, world!"

    run(body, server.url)


def test_a_full_queue_is_overload(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel(faults=[Fault("error", 0, code="RESOURCE_EXHAUSTED", message="queue full")]))
    assert isinstance(failure(run, server.url)[0], Overloaded)


@pytest.mark.parametrize(
    ("at", "timeouts", "error"),
    [
        (0, Timeouts(first_token_s=0.2), FirstTokenTimeout),
        (2, Timeouts(between_tokens_s=0.2), BetweenTokensTimeout),
        (0, Timeouts(total_s=1.5), TotalTimeout),
        (2, Timeouts(total_s=1.5), TotalTimeout),
    ],
)
def test_a_stalled_server_is_left_at_the_limit_that_is_named(
    run: Any, serve: Any, at: int, timeouts: Timeouts, error: type[Exception]
) -> None:
    server = serve(llm=FakeModel(reply=WORDS, faults=[Fault("stall", at)]))
    found, pieces, seconds = failure(run, server.url, timeouts=timeouts)
    assert type(found) is error
    assert pieces == WORDS[:at]
    assert seconds < 10
    assert server.wait_for(lambda: server.served[0].end == "cancelled")  # the server was told


def test_a_server_that_stops_at_the_deadline_itself_gives_the_same_error(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel(reply=WORDS, finish="deadline"))
    assert isinstance(failure(run, server.url, params={"deadline_s": 30})[0], TotalTimeout)

    async def body(client: Any) -> None:  # the server's own limit, not ours: an end like any other
        assert (await client.generate("llm", "x")).finish_reason == "deadline"

    run(body, server.url)


def test_a_slow_reader_is_not_a_silent_server(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel(reply=WORDS))

    async def body(client: Any) -> None:
        pieces = []
        async for event in client.stream("llm", "x"):
            if isinstance(event, TextDelta):
                pieces.append(event.text)
                await asyncio.sleep(0.15)  # longer than the limit, while the next token waits to be read
            elif isinstance(event, Finish):
                assert event.reason == "stop"
        assert pieces == WORDS

    run(body, server.url, timeouts=Timeouts(first_token_s=5, between_tokens_s=0.1))


def test_a_server_that_does_not_even_say_what_the_model_is(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel())
    server.config_delay_s = 30.0

    async def body(client: Any) -> None:
        with pytest.raises(FirstTokenTimeout, match="what the model is"):
            await client.generate("llm", "x")
        with pytest.raises(TotalTimeout):
            await client.generate("llm", "x", deadline_s=0.2)

    run(body, server.url, timeouts=Timeouts(first_token_s=0.3), retry=ONCE)
