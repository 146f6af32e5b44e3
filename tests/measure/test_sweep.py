"""The search for the safe level, on servers whose latency is a formula, and once on a fake Triton."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.measure.test_records import LOAD, frozen, record

from tritonstream.testing import FakeModel, FakeTriton
from trtbuild.cli import run
from trtbuild.measure.records.store import Store
from trtbuild.measure.sweep import Budget, Level, find_safe

pytestmark = pytest.mark.alone

BUDGET = Budget(0.8, quantile=0.95)


def formula(latency_s, noise=0.0):
    """Measures a level as ``latency_s(load)``, with noise between and within runs."""
    runs = []

    def measure(level):
        rng = np.random.default_rng(len(runs))
        between = 1 + noise * rng.standard_normal()
        made = record(latency_s(level.load) * between * rng.uniform(0.98, 1.02, 90), load=LOAD)
        runs.append(level.load)
        level.records.append(made)

    return measure, runs


@settings(max_examples=12)
@given(st.integers(1, 200))
def test_the_highest_level_that_meets_is_found_by_bisection(limit):
    # 0.8 s is reached a little above `limit` users
    measure, runs = formula(lambda users: 0.78 * users / (limit + 0.0))
    found = find_safe(measure, BUDGET, by="users", start=1, most=256)
    assert found.safe is not None
    assert found.safe.load == pytest.approx(limit, abs=1)
    assert len(found.safe.records) == 3
    assert len(set(runs)) <= 2 * 8 + 1  # doublings and halvings up to 256


def test_a_level_that_does_not_hold_is_stepped_back_from():
    calls = {}

    def measure(level):
        calls[level.load] = calls.get(level.load, 0) + 1
        value = 0.7 if level.load < 6 or (calls[level.load] == 1 and level.load == 6) else 1.4
        level.records.append(record(np.full(90, value), load=LOAD))

    found = find_safe(measure, BUDGET, by="users", start=1, most=16)
    assert found.safe.load == 5
    assert calls[6] == 2


def test_a_budget_that_nothing_meets_shows_the_nearest():
    measure, _ = formula(lambda users: 1.0 + users)
    found = find_safe(measure, BUDGET, by="users", start=8, most=64)
    assert found.safe is None
    assert found.nearest.load == 1


def test_a_budget_that_everything_meets_stops_at_the_highest():
    measure, _ = formula(lambda users: 0.1)
    found = find_safe(measure, BUDGET, by="users", start=1, most=32)
    assert found.safe.load == 32


def test_a_rate_is_found_to_a_tenth():
    measure, _ = formula(lambda rate: 0.8 * rate / 7.3)
    found = find_safe(measure, BUDGET, by="rate", start=1, most=64, least=1 / 64)
    assert 7.3 / 1.15 <= found.safe.load <= 7.3


def test_how_sure_it_is():
    measure, _ = formula(lambda users: 0.4 if users < 4 else 2.0)
    found = find_safe(measure, BUDGET, by="users", start=1, most=8)
    assert found.safe.sure
    close, _ = formula(lambda users: 0.786)  # P95 of ±2 % around it is 0.8008 at most
    near = find_safe(close, BUDGET, by="users", start=1, most=1)
    assert not near.levels[0].sure


def test_a_percentile_that_falls_among_failed_requests_meets_no_budget():
    """15 of 55 got nothing within 5 s: whether P90 is below 10 s nobody knows."""
    level = Level(1, Budget(10.0, quantile=0.9), [frozen(limit_s=5.0)])
    assert (level.figure.value, level.figure.at_least) == (pytest.approx(5.0), True)
    assert not level.meets
    assert not level.sure
    assert Level(1, Budget(0.05, quantile=0.9), [frozen(limit_s=5.0)]).sure  # above it in any case


@pytest.mark.slow
def test_the_command_finds_where_a_server_of_three_places_breaks(tmp_path, capsys):
    """Three requests are served at once, 40 ms each to the first token; the fourth waits for a place."""
    import threading
    import time

    places = threading.Semaphore(3)

    def reply(inputs):
        with places:
            time.sleep(0.02)  # the fake asks twice for each answer
        return [" w"] * 2

    with FakeTriton({"llm": FakeModel(reply=reply)}) as fake:
        args = (
            "--url",
            fake.url,
            "--model",
            "llm",
            "--traffic",
            "8/2",
            "--duration",
            "1.5",
            "--warmup",
            "0.2",
        )
        fixed = ("--runs", str(tmp_path / "r.sqlite"), "--repeats", "2", "--percentile", "50")
        code = run(("sweep", "--budget", "0.08", "--to", "24", *args, *fixed))
        shown = capsys.readouterr()
        assert code == 0
        assert "safe:" in shown.out
        code = run(("sweep", "--budget", "0.001", "--to", "4", *args, *fixed))
        assert code == 1
        assert "no level meets TTFT P50 ≤ 1 ms: 1 user comes nearest" in capsys.readouterr().err


def test_a_level_with_too_few_requests_says_how_long_its_runs_must_be(tmp_path, capsys):
    with FakeTriton({"llm": FakeModel(reply=[" w"] * 50, first_token_s=0.2)}) as fake:
        words = ("--url", fake.url, "--model", "llm", "--traffic", "8/4", "--warmup", "0", "--to", "1")
        fixed = ("sweep", *words, "--budget", "5", "--repeats", "1", "--runs", str(tmp_path / "runs.sqlite"))
        assert run((*fixed, "--duration", "0.3")) == 1
        said = capsys.readouterr().err
        assert "1 user: P95 needs 72 requests, there are" in said
        seconds = re.search(r"--duration (\d+)", said)
        assert seconds is not None
        assert 2 <= int(seconds[1]) <= 6  # 72 requests of 0.2 s, in runs of 1, 2 and 4 times that


def test_a_budget_that_every_request_breaks_needs_no_percentile(tmp_path, capsys):
    """Of 20 requests a P95 is not known; that it is above a limit which all of them break is."""
    with FakeTriton({"llm": FakeModel(reply=[" w"] * 50, first_token_s=0.1)}) as fake:
        words = ("--url", fake.url, "--model", "llm", "--traffic", "8/4", "--warmup", "0", "--from", "2")
        fixed = ("sweep", *words, "--budget", "0.01", "--runs", str(tmp_path / "runs.sqlite"))
        assert run((*fixed, "--duration", "1")) == 1
    said = capsys.readouterr()
    assert "breaks, unsure" not in said.out
    assert re.search(
        r"no level meets TTFT P95 ≤ 10 ms: 1 user comes nearest with (\d+) of \1 requests", said.err
    )
    assert len(Store(tmp_path / "runs.sqlite").runs()) == 2  # none was repeated for more requests


def test_a_knee_at_the_highest_level_was_not_reached(tmp_path, capsys):
    with FakeTriton({"llm": FakeModel(reply=[" w"] * 50, first_token_s=0.1)}) as fake:
        words = ("--url", fake.url, "--model", "llm", "--traffic", "8/4", "--warmup", "0", "--to", "2")
        fixed = ("--budget", "5", "--percentile", "50", "--repeats", "1", "--duration", "1.5")
        assert run(("sweep", *words, *fixed, "--runs", str(tmp_path / "runs.sqlite"))) == 0
    assert "knee: not reached by 2 users" in capsys.readouterr().out
