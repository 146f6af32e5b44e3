"""The file of runs: what is kept, found, marked and compared."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
import subprocess
import sys

import numpy as np
import pytest

from trtbuild.cli import run
from trtbuild.errors import MeasureError
from trtbuild.measure.load.sample import RequestSample
from trtbuild.measure.metrics import LATENCIES, observed, summarise
from trtbuild.measure.notes import judged
from trtbuild.measure.records.compare import compare
from trtbuild.measure.records.record import Record
from trtbuild.measure.records.store import Store
from trtbuild.measure.records.tables import runs_csv
from trtbuild.measure.roofs import impossible

LOAD = {
    "flows": [
        {
            "model": "m",
            "shape": {"kind": "closed", "users": 4},
            "traffic": [{"kind": "text", "name": "t", "input_tokens": 10}],
        }
    ]
}


def sample(number, *, begin_s=0.0, ttft_s=0.1, step_s=0.01, tokens=5, **fields):
    arrivals = [begin_s + ttft_s + step_s * index for index in range(tokens)]
    values = {
        "number": number, "traffic": "t", "model": "m", "kind": "text", "phase": "measured",
        "intended_s": begin_s, "sent_s": begin_s, "first_s": arrivals[0], "end_s": arrivals[-1],
        "outcome": "ok", "prompt_tokens": 10, "output_tokens": tokens, "max_tokens": tokens,
        "arrival_s": arrivals, "arrival_tokens": [1] * tokens,
    }  # fmt: skip
    return RequestSample(**(values | fields))


def record(ttfts, *, load=LOAD, **fields):
    made = Record(load=load, state="complete", window_s=(0.0, 100.0), duration_s=100.0, **fields)
    made.requests = [sample(n, begin_s=n * 0.1, ttft_s=float(ttft_s)) for n, ttft_s in enumerate(ttfts)]
    made.metrics = summarise(made)
    return made


def test_metrics_by_hand():
    one = sample(0, begin_s=2.0, ttft_s=0.5, step_s=0.1, tokens=5)
    assert one.ttft_s == pytest.approx(0.5)
    assert one.tpot_s == pytest.approx(0.1)  # (4 · 0.1) / (5 − 1)
    assert one.latency_s == pytest.approx(0.9)
    assert list(one.itl_s()) == pytest.approx([0.1] * 4)
    two = sample(1, arrival_s=[1.0, 1.3], arrival_tokens=[1, 3], first_s=1.0, end_s=1.3)
    assert list(two.itl_s()) == pytest.approx([0.1] * 3)  # three tokens after 0.3 s
    assert two.tpot_s == pytest.approx(0.1)  # 0.3 / (4 − 1)


def test_rates_by_hand():
    made = record([0.1] * 50)
    group = made.metrics["all"]
    assert group["tokens_out_per_s"]["value"] == pytest.approx(50 * 5 / 100)
    assert group["tokens_in_per_s"]["value"] == pytest.approx(50 * 10 / 100)
    assert group["requests_per_s"]["value"] == pytest.approx(0.5)


def spread(count):
    """TTFTs from 0.1 to 3 s in no order."""
    return np.random.default_rng(8).permutation(np.linspace(0.1, 3.0, count))


def frozen(*, limit_s=5.0, count=55, silent=15):
    """A run in which the last requests got nothing within the time limit."""
    made = record(spread(count))
    for one in made.requests[-silent:]:
        one.first_s, one.arrival_s, one.arrival_tokens, one.output_tokens = None, [], [], None
        one.outcome, one.error, one.end_s = "timeout", "TotalTimeout: late", one.intended_s + limit_s
    made.metrics = summarise(made)
    return made


def test_a_request_without_an_answer_counts_as_longer_than_its_wait():
    group = frozen().metrics["all"]
    assert (group["ttft_s"]["n"], group["ttft_s"]["cut"]) == (55, 15)
    assert group["ttft_s"]["p90"]["value"] == pytest.approx(5.0)
    assert group["ttft_s"]["p90"]["at_least"]
    assert group["latency_s"]["p90"]["at_least"]
    assert group["ttft_s"]["mean"]["at_least"]
    assert "at_least" not in group["ttft_s"]["p50"]
    said = " ".join(judged(made_generator(frozen())))
    assert "15 of 55 requests got nothing in the 5.0 s that they were waited for" in said


def made_generator(made):
    made.generator = {
        "cpu_share": 0.1,
        "send_error_max_s": 0.001,
        "sent": 55,
        "sent_late": 0,
        "loop_lag_max_s": 0.0,
    }
    made.load = {**made.load, "flows": []}
    return made


@pytest.mark.parametrize(
    ("sent", "late", "told"), [(44, 1, False), (1, 1, True), (44, 9, True), (9000, 30, False)]
)
def test_a_generator_is_called_late_where_more_than_a_hundredth_surely_was(sent, late, told):
    made = made_generator(record([0.1] * 20))
    made.generator |= {"sent": sent, "sent_late": late, "send_error_max_s": 0.05}
    assert any("the generator was late" in text for text in judged(made)) == told


def test_a_stream_that_stops_counts_in_tpot_and_itl():
    one = sample(0, tokens=2, max_tokens=11, outcome="timeout", end_s=5.1)
    ttft, tpot, itl, latency, _ = (observed(metric, [one]) for metric in LATENCIES)
    assert (ttft.values.tolist(), ttft.cuts) == ([pytest.approx(0.1)], 0)  # its first token came
    assert (tpot.values.tolist(), tpot.cuts) == ([pytest.approx(0.5)], 1)  # 5 s for at most 10 tokens more
    assert itl.values.tolist() == [pytest.approx(0.01), pytest.approx(5.1 - 0.11)]
    assert itl.cut.tolist() == [False, True]
    assert (latency.values.tolist(), latency.cuts) == ([pytest.approx(5.1)], 1)


def test_a_server_that_failed_is_not_called_better():
    base = record(spread(55))
    rows = {row.metric: row for row in compare(base, frozen(silent=30)).rows}
    assert rows["TTFT P50"].verdict == "worse"
    assert rows["TTFT P50"].at_least == (False, True)


def test_exports_say_what_is_a_bound():
    (row,) = csv.DictReader(io.StringIO(runs_csv([frozen(count=100, silent=15)])))
    assert "ttft_s_p95" in row["at_least"].split()
    assert "ttft_s_p50" not in row["at_least"].split()


def test_a_whole_record_is_kept(tmp_path):
    store, made = Store(tmp_path / "r.sqlite"), record([0.1, 0.2, 0.3], label="first")
    made.timeline = [(0.5, "m", "active", 3.0)]
    store.put(made)
    kept = store.read(made.run_id[:4])
    assert kept.load == made.load
    assert kept.timeline == made.timeline
    assert [one.outcome for one in kept.requests] == ["ok"] * 3
    assert kept.requests[1].arrival_s == pytest.approx(made.requests[1].arrival_s, abs=1e-6)
    assert store.read("first").run_id == store.read("last").run_id == made.run_id


def exported(tmp_path, **fields):
    path = tmp_path / "exported.json"
    data = record([0.1, 0.2], run_id="abcd1234").as_json()
    first = {name: fields.pop(name) for name in list(fields) if name in data["requests"][0]}
    data["requests"][0] |= first
    path.write_text(json.dumps(data | fields), encoding="utf-8")
    return ["runs", "--runs", str(tmp_path / "r.sqlite"), "--import", str(path)]


def test_a_record_of_a_later_version_is_imported(tmp_path, capsys):
    assert run(exported(tmp_path, something_new=1)) == 0
    assert "abcd1234" in capsys.readouterr().out
    assert [one.outcome for one in Store(tmp_path / "r.sqlite").read("abcd").requests] == ["ok"] * 2


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"end_s": "soon"}, "requests.0.end_s"),
        ({"first_s": float("nan")}, "requests.0.first_s"),
        ({"output_tokens": 10**30}, "requests.0.output_tokens"),
        ({"arrival_tokens": [70_000] * 5}, "requests.0.arrival_tokens.0"),
        ({"arrival_tokens": [1]}, "5 arrival_s and 1 arrival_tokens"),
        ({"begun_unix_s": 1e300}, "begun_unix_s is 1e+300, no time"),
        ({"window_s": [5]}, "window_s.1"),
        ({"timeline": [[1, 2]]}, "timeline.0"),
        ({"metrics": {"all": 5}}, "metrics.all is no object"),
        ({"machine": [1]}, "machine"),
        ({"label": "a\ud800"}, "half of a surrogate pair"),
        ({"schema": "other"}, "its schema is 'other'"),
    ],
)
def test_a_record_that_no_run_wrote_is_not_imported(tmp_path, capsys, fields, said):
    assert run(exported(tmp_path, **fields)) == 1
    assert said in capsys.readouterr().err
    assert not (tmp_path / "r.sqlite").exists()


@pytest.mark.parametrize("text", ["[]", "[" * 100_000, "hello"])
def test_a_file_that_is_no_record_is_not_imported(tmp_path, capsys, text):
    path = tmp_path / "no.json"
    path.write_text(text)
    assert run(["runs", "--runs", str(tmp_path / "r.sqlite"), "--import", str(path)]) == 1
    assert capsys.readouterr().err.startswith("error: ")


def test_a_run_whose_process_is_gone_is_marked(tmp_path):
    path = tmp_path / "r.sqlite"
    code = (
        "import sys, os; from pathlib import Path\n"
        "from trtbuild.measure.records.store import Store, request_row\n"
        "from trtbuild.measure.records.record import Record\n"
        "from tests.measure.test_records import sample\n"
        "made, store = Record(load={}), Store(Path(sys.argv[1]))\n"
        "store.begin(made); store.add(made, [request_row(sample(0))], []); os._exit(9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == 9
    kept = Store(path).read("last")
    assert kept.state == "died"
    assert len(kept.requests) == 1
    assert kept.metrics["all"]["requests"] == 1  # it could not sum up itself
    assert kept.window_s[1] == pytest.approx(0.14)


def test_names_that_mean_no_run(tmp_path):
    store = Store(tmp_path / "r.sqlite")
    with pytest.raises(MeasureError, match="no run was recorded"):
        store.runs()
    store.put(record([0.1]))
    with pytest.raises(MeasureError, match="has no run 'zzz'"):
        store.read("zzz")


def test_a_file_that_is_none_is_refused(tmp_path):
    path = tmp_path / "r.sqlite"
    path.write_text("not a database, but long enough to be looked at " * 20)
    with pytest.raises(MeasureError, match="cannot be used as a file of runs"):
        Store(path).runs()
    newer = tmp_path / "newer.sqlite"
    with sqlite3.connect(newer) as connection:
        connection.execute("PRAGMA user_version = 9")
        connection.execute("CREATE TABLE x (y)")
    connection.close()
    with pytest.raises(MeasureError, match="version 9"):
        Store(newer).runs()


def test_what_stands_in_the_place_of_the_file_is_not_replaced(tmp_path):
    aim, link, folder = tmp_path / "aim.sqlite", tmp_path / "link.sqlite", tmp_path / "folder"
    link.symlink_to(aim)
    Store(link).put(record([0.1]))
    assert link.is_symlink()
    assert len(Store(aim).runs()) == 1
    folder.mkdir()
    with pytest.raises(MeasureError, match="cannot be used as a file of runs"):
        Store(folder).put(record([0.1]))
    assert folder.is_dir()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["aim.sqlite", "folder", "link.sqlite"]


def drawn(factor, seed, count=400):
    return np.random.default_rng(seed).gamma(9, 0.02, count) * factor


def test_a_slower_run_is_called_worse_and_a_repeat_is_not():
    base, repeat, slower = (record(drawn(factor, seed)) for factor, seed in ((1, 1), (1, 2), (1.4, 3)))
    verdicts = {row.metric: row.verdict for row in compare(base, repeat).rows}
    assert verdicts["TTFT P50"] == "no difference shown"
    rows = {row.metric: row for row in compare(base, slower).rows}
    assert rows["TTFT P50"].verdict == "worse"
    assert rows["TTFT P50"].relative == pytest.approx(0.4, abs=0.1)
    assert {row.metric: row.verdict for row in compare(slower, base).rows}["TTFT P50"] == "better"


def test_too_few_requests_are_not_compared():
    rows = {row.metric: row for row in compare(record(drawn(1, 1, 50)), record(drawn(1, 2, 50))).rows}
    assert rows["TTFT P99"].verdict == "too few requests"
    assert rows["TTFT P50"].verdict == "no difference shown"


def test_other_loads_and_unfinished_runs_are_not_comparable():
    users = {"flows": [{**LOAD["flows"][0], "shape": {"kind": "closed", "users": 9}}]}
    base = record(drawn(1, 1))
    assert any("users" in reason for reason in compare(base, record(drawn(1, 1), load=users)).reasons)
    open_loop = {"flows": [{**LOAD["flows"][0], "shape": {"kind": "poisson", "rate_per_s": 2.0}}]}
    (reason,) = compare(base, record(drawn(1, 1), load=open_loop)).reasons
    assert reason == "the load differs, flows.0.shape.kind: closed and poisson"
    dead = record(drawn(1, 1))
    dead.state, dead.why = "server died", "no answer since 3 s"
    assert any("server died" in reason for reason in compare(base, dead).reasons)
    assert compare(base, record(drawn(1, 9))).reasons == ()


def test_impossible_figures_are_flagged():
    good = record([0.1] * 20)
    assert impossible(good) == []
    back = record([0.1])
    back.requests[0].first_s = back.requests[0].intended_s - 1
    assert any("backwards" in text for text in impossible(back))
    long = record([0.1])
    long.requests[0].output_tokens = 99
    assert any("more tokens than were allowed" in text for text in impossible(long))
    crowd = record([0.1] * 20)
    for one in crowd.requests:
        one.intended_s, one.sent_s, one.end_s = 0.0, 0.0, 99.0
    assert any("there are 4 users" in text for text in impossible(crowd))


def test_tokens_that_the_server_never_made_are_flagged():
    made = record([0.1] * 400)  # five tokens each, ten requests a second
    made.timeline = [(float(t_s), "m", "tokens_out", 50.0 * t_s) for t_s in range(3, 38)]
    assert impossible(made) == []
    made.timeline = [(float(t_s), "m", "tokens_out", 5.0 * t_s) for t_s in range(3, 38)]
    assert any("the server counts 170" in text for text in impossible(made))
