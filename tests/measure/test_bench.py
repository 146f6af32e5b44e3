"""Loads on a fake Triton: what is sent when, what is counted, what is kept, and what goes wrong."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tritonstream import ModelKind
from tritonstream.testing import FakeModel, FakePage, FakeTriton, Fault
from trtbuild.cli.measured import show_run
from trtbuild.errors import MeasureError, ServeError
from trtbuild.measure.bench import bench
from trtbuild.measure.load.flags import parse_shape, parse_traffic
from trtbuild.measure.load.spec import (
    Bursts,
    Closed,
    Constant,
    FileTraffic,
    Flow,
    LoadSpec,
    Replay,
    Slo,
    TextTraffic,
)
from trtbuild.measure.metrics import summarise
from trtbuild.measure.mix import Tokens, run_mix
from trtbuild.measure.notes import judged
from trtbuild.measure.records.record import Record
from trtbuild.measure.records.store import Store
from trtbuild.measure.server import MeasuredServer

pytestmark = pytest.mark.alone

WORDS = [f" w{number}" for number in range(200)]


def load(shape, *traffic, model="llm", **fields):
    traffic = traffic or (TextTraffic(name="t", input_tokens=12, output_tokens=5),)
    fields = {"duration_s": 1.5, "warmup_s": 0.0, "timeout_s": 5.0, **fields}
    return LoadSpec(flows=(Flow(model=model, shape=shape, traffic=traffic),), **fields)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs.sqlite")


@pytest.fixture
def fake():
    with FakeTriton({"llm": FakeModel(reply=WORDS)}) as server:
        yield server


def run(fake, what, store, **fields):
    return bench(MeasuredServer(fake.url), what, store, **fields)


def test_lengths_and_counts_are_those_of_the_server(fake, store):
    record = run(fake, load(Closed(users=2), requests=10), store)
    assert record.state == "complete"
    assert len(record.requests) >= 10
    assert {one.prompt_tokens for one in record.requests} == {12}  # the fake counts words
    assert {one.output_tokens for one in record.requests} == {5}
    assert all(sum(one.arrival_tokens) == 5 for one in record.requests)
    asked = [served.inputs for served in fake.served if served.inputs["max_tokens"] == 5]
    assert all(inputs["min_tokens"] == 5 for inputs in asked)
    assert len({inputs["text_input"] for inputs in asked}) == len(asked)  # no prompt twice


def test_a_front_can_count_interactive_and_offline_requests_apart(fake, store):
    offline = TextTraffic(name="o", input_tokens=12, output_tokens=6, interactive=False)
    interactive = TextTraffic(name="i", input_tokens=12, output_tokens=5)
    run(fake, load(Closed(users=2), interactive, offline, requests=20), store)
    classes = {
        (served.inputs["max_tokens"], served.parameters.get("traffic_class")) for served in fake.served
    }
    assert {pair for pair in classes if pair[0] in (5, 6)} == {(5, "interactive"), (6, "offline")}
    assert {name for tokens, name in classes if tokens < 5} == {None}  # what only prepares the run


def test_two_runs_with_one_seed_send_no_prompt_twice(fake, store):
    for _ in range(2):
        run(fake, load(Closed(users=1), requests=3), store)
    asked = [served.inputs["text_input"] for served in fake.served if served.inputs["max_tokens"] == 5]
    assert len(set(asked)) == len(asked) >= 6


def test_a_shared_prefix_has_its_share(fake, store):
    traffic = TextTraffic(name="t", input_tokens=40, output_tokens=2, prefix_share=0.5)
    record = run(fake, load(Closed(users=1), traffic, requests=4), store)
    asked = [s.inputs["text_input"].split() for s in fake.served if s.inputs["max_tokens"] == 2]
    assert len({tuple(words[:20]) for words in asked}) == 1
    assert len({tuple(words[20:]) for words in asked}) == len(asked)
    assert {one.prefix_tokens for one in record.requests} == {20}


@pytest.mark.slow
def test_an_open_loop_counts_from_the_intended_time(store):
    """One is served at a time, 0.1 s or more each, and twenty a second come."""
    busy = threading.Lock()

    def slow(inputs):
        with busy:
            time.sleep(0.1)
        return WORDS

    with FakeTriton({"llm": FakeModel(reply=slow)}) as fake:
        record = run(fake, load(Constant(rate_per_s=20), duration_s=0.5, timeout_s=10), store)
    latencies = [one.latency_s for one in sorted(record.requests, key=lambda one: one.intended_s)]
    assert len(latencies) == 10
    # the k-th is over no sooner than 0.1 · k s, meant for 0.05 · (k − 1) s
    assert max(latencies) > 10 * 0.1 - 9 * 0.05


def test_a_trace_is_replayed_with_its_lengths(fake, store, tmp_path):
    path = tmp_path / "trace.jsonl"
    rows = [
        {"at_s": 0, "input_tokens": 7, "output_tokens": 3},
        {"at_s": 0.4, "input_tokens": 9, "output_tokens": 2},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    record = run(fake, load(Replay(path=path, speed=2.0)), store)
    assert [one.intended_s for one in record.requests] == [0, 0.2]
    assert [(one.prompt_tokens, one.output_tokens) for one in record.requests] == [(7, 3), (9, 2)]


def test_a_trace_that_is_over_sooner_than_its_answers_is_measured_to_the_last(store, tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text('{"at_s": 0, "output_tokens": 5}\n{"at_s": 0.1, "output_tokens": 5}\n')
    with FakeTriton({"llm": FakeModel(reply=WORDS, between_tokens_s=0.1)}) as fake:
        record = run(fake, load(Replay(path=path), duration_s=20.0), store)
    assert record.window_s[1] == pytest.approx(max(one.end_s for one in record.requests))
    length_s = record.window_s[1]
    assert record.metrics["all"]["tokens_out_per_s"]["value"] == pytest.approx(10 / length_s, rel=0.15)
    assert record.metrics["all"]["requests"] == 2  # the one that was sent last counts too


def test_lines_of_a_trace_that_come_too_late_are_told(fake, store, tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text('{"at_s": 0}\n{"at_s": 0.1}\n{"at_s": 90}\n')
    record = run(fake, load(Replay(path=path), duration_s=0.5), store)
    assert len(record.requests) == 2
    assert any("1 of its 3 requests come after the 0.5 s" in text for text in record.notes)


def test_a_window_shorter_than_an_answer_gives_no_rate(store, capsys):
    with FakeTriton({"llm": FakeModel(reply=WORDS, between_tokens_s=0.2)}) as fake:
        record = run(fake, load(Bursts(requests=3, every_s=0.2), duration_s=0.4), store)
    assert all(one.outcome == "ok" for one in record.requests)
    assert any("window too short" in text for text in record.notes)
    show_run(record)
    assert "too short" in capsys.readouterr().out


def test_the_connection_is_there_before_the_clock_starts(store):
    """What a first call costs is no request's: neither late sending nor a longer first token."""
    with FakeTriton({"llm": FakeModel(reply=WORDS)}) as fake:
        record = run(fake, load(Constant(rate_per_s=1), requests=1, duration_s=3.0), store)
        served = len(fake.served)
    assert len(record.requests) == 1
    assert served == 4  # two that size prompts, one that warms, and the one that counts
    assert record.requests[0].intended_s == 0
    assert record.generator["sent"] == 1
    assert record.generator["send_error_max_s"] < 0.03  # the timeline's process alone took longer to start


@pytest.mark.slow
@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_run_that_is_told_to_end_is_kept_as_interrupted(store, told):
    with FakeTriton({"llm": FakeModel(reply=WORDS, first_token_s=0.05)}) as fake:
        words = ["bench", "--model", "llm", "--url", fake.url, "--duration", "60", "--warmup", "0"]
        child = subprocess.Popen(
            [sys.executable, "-m", "trtbuild", *words, "--runs", str(store.path)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        deadline = time.monotonic() + 60
        while len(fake.served) < 6 and time.monotonic() < deadline:
            time.sleep(0.05)
        child.send_signal(told)
        _, said = child.communicate(timeout=30)
    assert child.returncode == 130
    assert "interrupted" in said
    kept = store.read("last")
    assert kept.state == "interrupted"
    assert any(one.outcome == "ok" for one in kept.requests)


def test_ctrl_c_in_the_midst_of_a_callback_loses_nothing(fake, store, monkeypatch):
    """gRPC's own callbacks tell that a call ended; one that was cut short left the run waiting for ever."""

    async def sizing(*_, **__):
        told = asyncio.get_running_loop().create_future()

        def tell():
            signal.raise_signal(signal.SIGINT)
            told.set_result(None)

        asyncio.get_running_loop().call_soon(tell)
        try:
            await asyncio.sleep(30)
        finally:
            await asyncio.wait_for(told, 5)

    monkeypatch.setattr("trtbuild.measure.bench.make_caller", sizing)
    with pytest.raises(KeyboardInterrupt):
        run(fake, load(Closed(users=1)), store)
    assert not store.path.exists()


def test_ctrl_c_a_second_time_still_leaves_a_record_with_its_end(fake, store, monkeypatch):
    def impatient(*words):
        signal.raise_signal(signal.SIGINT)
        return summarise(*words)

    monkeypatch.setattr("trtbuild.measure.bench.summarise", impatient)
    pressed = threading.Event()

    def press(progress):
        if progress.done and not pressed.is_set():
            pressed.set()
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match="is kept: trtbuild runs "):
        run(fake, load(Closed(users=1), duration_s=30.0), store, on_progress=press)
    assert store.read("last").state == "interrupted"


def test_what_is_ignored_from_outside_stays_ignored(fake, store):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        hang_up = threading.Timer(0.5, signal.raise_signal, [signal.SIGHUP])
        hang_up.start()
        record = run(fake, load(Closed(users=1), duration_s=1.0), store)
        hang_up.join()
    finally:
        signal.signal(signal.SIGHUP, before)
    assert record.state == "complete"


def test_a_limit_that_answers_break_does_not_keep_prompts_from_being_sized(store):
    with FakeTriton({"llm": FakeModel(reply=WORDS, first_token_s=0.3)}) as fake:
        record = run(fake, load(Closed(users=1), duration_s=1.0, timeout_s=0.1), store)
    assert {one.outcome for one in record.requests} == {"timeout"}


def test_so_many_requests_are_so_many(fake, store):
    assert len(run(fake, load(Closed(users=3), requests=4), store).requests) == 4
    flow = load(Constant(rate_per_s=20)).flows[0]
    both = load(Constant(rate_per_s=20)).model_copy(update={"flows": (flow, flow), "requests": 5})
    assert len(run(fake, both, store).requests) == 5


def test_requests_that_began_in_the_warm_up_and_outlast_the_run_are_told(store):
    with FakeTriton({"llm": FakeModel(reply=WORDS, between_tokens_s=0.2)}) as fake:
        record = run(fake, load(Closed(users=2), duration_s=0.5, warmup_s=0.2), store)
    assert "no request was measured: all 2 began in the 0.2 s of warm-up, and took up to" in record.notes[-1]


def test_own_prompts_go_round(fake, store, tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text('"one prompt"\n{"messages": [{"role": "user", "content": "two"}], "max_tokens": 3}\n')
    record = run(
        fake, load(Closed(users=1), FileTraffic(name="p", path=path, output_tokens=4), requests=4), store
    )
    assert [one.output_tokens for one in record.requests][:4] == [4, 3, 4, 3]


def test_bad_files_are_refused_before_anything_is_sent(fake, store, tmp_path):
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    with pytest.raises(MeasureError, match="holds no prompt"):
        run(fake, load(Closed(users=1), FileTraffic(name="p", path=empty)), store)
    assert not fake.served
    assert not store.path.exists()


def test_a_prompt_that_no_client_sends_is_named(fake, store, tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text('"fine"\n{"messages": [{"role": "user"}]}\n')
    with pytest.raises(MeasureError, match=r"p\.jsonl:2 cannot be sent: message 0 has neither content"):
        run(fake, load(Closed(users=1), FileTraffic(name="p", path=path), requests=4), store)


def test_the_warm_up_counts_in_nothing(fake, store):
    record = run(fake, load(Constant(rate_per_s=20), duration_s=1.0, warmup_s=0.5), store)
    assert [one.phase for one in record.requests].count("warmup") == 10
    assert record.metrics["all"]["requests"] == 10
    assert record.window_s == (0.5, pytest.approx(1.0, abs=0.2))


def test_classes_are_counted_apart_and_offline_from_interactive(fake, store):
    traffic = (parse_traffic("8/2=1"), parse_traffic("16/4:offline=1"))
    record = run(fake, load(Closed(users=2), *traffic, requests=40), store)
    apart = record.metrics["traffic"]
    assert apart["8/2"]["requests"] + apart["16/4"]["requests"] == record.metrics["all"]["requests"]
    assert record.metrics["offline"]["requests"] == apart["16/4"]["requests"] > 0


@pytest.mark.slow
def test_goodput_counts_what_keeps_the_slo(fake, store):
    fake.models["llm"].first_token_s = 0.05
    record = run(fake, load(Closed(users=1), slo=Slo(ttft_s=0.01)), store)
    assert record.metrics["all"]["goodput_per_s"]["value"] == 0
    assert record.metrics["all"]["requests_per_s"]["value"] > 5


@pytest.mark.slow
def test_outcomes_are_told_apart(store):
    faults = [Fault("error", message="out of blocks", times=2), Fault("stall", at=2, times=1)]
    with FakeTriton({"llm": FakeModel(reply=WORDS)}) as fake:
        later = threading.Timer(0.3, lambda: fake.models["llm"].faults.extend(faults))
        later.start()
        record = run(fake, load(Closed(users=1), timeout_s=0.5), store)
        later.join()
    outcomes = [one.outcome for one in record.requests]
    assert outcomes.count("error") == 2
    assert outcomes.count("timeout") == 1
    assert any("requests failed" in text for text in record.notes)
    late = next(one for one in record.requests if one.outcome == "timeout")
    assert sum(late.arrival_tokens) == 2


@pytest.mark.slow
def test_a_server_that_dies_is_noticed_and_the_record_kept(store):
    fake = FakeTriton({"llm": FakeModel(reply=WORDS)}).start()
    killer = threading.Thread(target=fake.stop)

    def kill(progress):
        if progress.done and killer.ident is None:
            killer.start()

    record = run(fake, load(Closed(users=2), duration_s=30.0), store, on_progress=kill)
    killer.join()
    assert record.state == "server died"
    assert record.duration_s < 20
    kept = store.read(record.run_id)
    assert kept.state == "server died"
    assert any(one.outcome == "ok" for one in kept.requests)


def test_a_disk_that_is_full_loses_the_record_but_not_the_figures(fake, store, monkeypatch):
    connect = sqlite3.connect

    def small(*args, **kwargs):
        connection = connect(*args, **kwargs)
        connection.execute("PRAGMA max_page_count = 1")
        return connection

    store.begin(Record(load={}))  # the file is there, and has its tables
    monkeypatch.setattr(sqlite3, "connect", small)
    record = run(fake, load(Closed(users=4), duration_s=1.0), store)
    assert record.state == "not kept"
    assert "full" in record.why
    assert record.metrics["all"]["ok"] > 100
    monkeypatch.undo()
    again = run(fake, load(Closed(users=1), requests=3), store)
    assert store.read(again.run_id).complete


def test_many_runs_begin_one_file_at_once(tmp_path):
    """Eight processes' worth of connections make the file and write to it at the same moment."""
    path, ready = tmp_path / "new.sqlite", threading.Barrier(8)

    def begin(number):
        ready.wait()
        own = Store(path)
        own.begin(Record(load={}, run_id=f"run{number}"))

    with ThreadPoolExecutor(8) as pool:
        for one in [pool.submit(begin, number) for number in range(8)]:
            one.result()
    assert {one.run_id for one in Store(path).runs()} == {f"run{number}" for number in range(8)}


def test_a_clock_that_jumps_changes_no_latency(fake, store, monkeypatch):
    """An hour forward, then back again, while requests run."""
    wall, calls = time.time, iter(range(10**9))
    monkeypatch.setattr(time, "time", lambda: wall() + 3600 * (next(calls) % 2))
    record = run(fake, load(Closed(users=2), duration_s=1.0), store)
    assert record.state == "complete"
    assert 0.9 < record.duration_s < 5
    assert all(0 <= one.ttft_s < 5 for one in record.measured())
    assert all(0 <= one.intended_s < 1.1 for one in record.requests)


def test_a_clock_that_jumps_is_told(fake, store):
    record = run(fake, load(Closed(users=1), duration_s=0.5), store)
    assert not any("wall clock" in text for text in record.notes)
    record.timeline += [(0.2, "", "wall_jump_s", 0.01), (0.4, "", "wall_jump_s", -3600.0)]
    assert any("the wall clock was moved by -3600.0 s meanwhile" in text for text in judged(record))


def test_a_server_that_answers_nothing_is_told_within_the_time_limit(store):
    with FakeTriton({"llm": FakeModel(reply=WORDS, faults=[Fault("stall", at=0, times=99)])}) as fake:
        begun_s = time.monotonic()
        with pytest.raises(ServeError, match=r"nothing was sent yet.*total_s=5"):
            run(fake, load(Closed(users=1), timeout_s=0.5), store)
    assert time.monotonic() - begun_s < 20
    assert not store.path.exists()  # nothing was measured


def test_an_unknown_model_is_an_error(fake, store):
    with pytest.raises(ServeError, match="unknown model"):
        run(fake, load(Closed(users=1), model="nobody"), store)


def test_text_for_a_vision_model_is_refused(store):
    with (
        FakeTriton({"ocr": FakeModel.ocr(FakePage())}) as fake,
        pytest.raises(MeasureError, match="generates no text"),
    ):
        run(fake, load(Closed(users=1), model="ocr"), store)


def test_engines_are_called_with_ids(store):
    with FakeTriton({"e": FakeModel(kind=ModelKind.ENGINE, reply=list(range(50)))}) as fake:
        record = run(fake, load(Closed(users=1), model="e", requests=3), store)
    assert {(one.prompt_tokens, one.output_tokens) for one in record.requests} == {(12, 5)}


@pytest.mark.slow
def test_llm_and_vision_together_give_an_isolation_figure(store):
    llm, ocr = FakeModel(reply=WORDS, first_token_s=0.01), FakeModel.ocr(FakePage(), first_token_s=0.02)
    both = LoadSpec(
        flows=(
            Flow(model="llm", shape=parse_shape("closed:2"), traffic=(parse_traffic("8/3"),)),
            Flow(model="ocr", shape=parse_shape("closed:1"), traffic=(parse_traffic("vision"),)),
        ),
        duration_s=1.5, warmup_s=0.0,
    )  # fmt: skip
    with FakeTriton({"llm": llm, "ocr": ocr}) as fake:
        mixed = run_mix(MeasuredServer(fake.url), both, store)
    assert {tenant.model for tenant in mixed.tenants} == {"llm", "ocr"}
    assert all(tenant.ratio is not None and tenant.ratio > 0 for tenant in mixed.tenants)
    (tokens,) = mixed.tokens
    assert tokens.model == "llm"
    assert tokens.alone_per_s > 0 < tokens.pictures_per_s
    assert tokens.share is None  # of a server elsewhere nobody knows what a picture costs
    runs = store.runs()
    assert len(runs) == 3
    assert len({one.series for one in runs}) == 1
    assert {one.model for one in store.read(mixed.run_ids[-1]).requests} == {"llm", "ocr"}


def test_what_pictures_leave_of_the_machine():
    tokens = Tokens("llm", 200.0, 140.0, pictures_per_s=10.0, cpu_s_per_picture=0.05, cores=2)
    assert tokens.ratio == pytest.approx(0.7)
    assert tokens.left == pytest.approx(0.75)  # 1 - 10 x 0.05 / 2
    assert tokens.share == pytest.approx(0.7 / 0.75)
    assert Tokens("llm", 200.0, 0.0, 50.0, 0.05, 2).share is None  # nothing is left: no figure


def test_only_runs_of_its_kind_are_what_a_run_is_held_against(fake, store):
    run(fake, load(Closed(users=1), requests=2), store)
    other = run(fake, load(Constant(rate_per_s=9), requests=2), store)
    assert other.changed == {}
    labelled = run(fake, load(Closed(users=1), parse_traffic("8/2"), requests=2), store, label="mine")
    assert labelled.changed == {}
    again = run(fake, load(Constant(rate_per_s=9), requests=2), store, label="mine")
    assert again.changed["run"] == [labelled.run_id, again.run_id]


def test_what_changed_since_the_last_run_is_told(fake, store):
    run(fake, load(Closed(users=1), requests=2), store)
    record = run(fake, load(Closed(users=3), requests=2), store)
    assert record.changed["load.flows.0.shape.users"] == [1, 3]


def test_records_go_out_as_json_and_come_back(fake, store, tmp_path):
    record = run(fake, load(Closed(users=1), requests=3), store)
    kept = store.read(record.run_id)
    again = type(record).from_json(json.loads(json.dumps(kept.as_json())))
    assert again == kept
    other = Store(tmp_path / "other.sqlite")
    other.put(again)
    assert other.read("last").requests == kept.requests
