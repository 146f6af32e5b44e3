"""bench, runs and compare at the command line, on a fake Triton."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import signal
import subprocess
import sys
import time

import pytest

from tritonstream.testing import FakeModel, FakeTriton
from trtbuild.cli import run
from trtbuild.cli.measured import the_model
from trtbuild.errors import MeasureError
from trtbuild.measure.records.store import Store
from trtbuild.measure.server import MeasuredServer


@pytest.fixture(scope="module")
def fake():
    with FakeTriton({"llm": FakeModel(reply=[" w"] * 50)}) as server:
        yield server


@pytest.fixture
def bench(fake, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRTBUILD_RUNS", raising=False)

    def call(*args):
        fixed = (
            "--url",
            fake.url,
            "--model",
            "llm",
            "--duration",
            "1",
            "--warmup",
            "0.1",
            "--traffic",
            "10/4",
        )
        return run(("bench", *fixed, *args))

    return call


def test_a_run_is_shown_and_kept(bench, tmp_path, capsys):
    assert bench("--users", "2", "--label", "first", "--slo-ttft", "1") == 0
    shown = capsys.readouterr()
    assert "TTFT" in shown.out
    assert "goodput" in shown.out
    assert "generator:" in shown.err
    assert (tmp_path / "runs" / "records.sqlite").is_file()
    assert run(("runs",)) == 0
    assert "closed 2, 10/4" in capsys.readouterr().out
    assert run(("runs", "first", "--json")) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["schema"] == "trtbuild.run/1"
    assert record["state"] == "complete"
    (tmp_path / "kept.json").write_text(json.dumps(record))
    assert run(("runs", "first", "--csv")) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == len(record["requests"])
    assert float(rows[3]["ttft_s"]) > 0
    assert run(("runs", "first", "--delete")) == 0
    assert run(("runs", "first")) == 1
    assert run(("runs", "--import", "kept.json")) == 0
    assert record["run_id"] in capsys.readouterr().out


@pytest.mark.slow
def test_compare_says_what_differs_or_refuses(bench, capsys):
    for label, users in (("a", "1"), ("b", "1"), ("c", "3")):
        assert bench("--users", users, "--label", label) == 0
    capsys.readouterr()
    assert run(("compare", "a", "b")) == 0
    assert "verdict" in capsys.readouterr().out
    assert run(("compare", "a", "c")) == 1
    assert "cannot be compared" in capsys.readouterr().err
    assert run(("compare", "a", "c", "--anyway")) == 0
    assert "load.flows.0.shape.users" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("--users", "2", "--rate", "3"), 2, "give one"),
        (("--shape", "tide:3"), 1, "is no load"),
        (("--traffic", "huge"), 1, "is no traffic"),
        (("--warmup", "9"), 1, "leaves nothing"),
        (("--load", "missing.yaml"), 2, "does not exist"),
        (("--rate", "0"), 2, "is not in the range x>0"),
        (("--rate", "-1"), 2, "is not in the range x>0"),
        (("--rate", "nan"), 2, "'nan' is not a finite number"),
        (("--rate", "1e9"), 1, "less than or equal to 1000000"),
        (("--users", "0"), 2, "is not in the range x>=1"),
        (("--users", "1000000"), 1, "users: Input should be less than or equal to 100000"),
        (("--timeout", "inf"), 2, "'inf' is not a finite number"),
        (("--duration", "nan"), 2, "'nan' is not a finite number"),
        (("--slo-ttft", "-1"), 2, "is not in the range x>0"),
        (("--shape", "poisson:nan"), 1, "finite number"),
        (("--shape", "ramp:1"), 1, "is no load"),
    ],
)
def test_what_cannot_be_run_is_refused(bench, capsys, args, code, said):
    assert bench(*args) == code
    assert said in capsys.readouterr().err


def test_a_load_file_says_all(fake, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "{kind: text, name: t, input_tokens: 5, output_tokens: 2}"
    flow = f"{{model: llm, shape: {{kind: closed, users: 1}}, traffic: [{text}]}}"
    (tmp_path / "load.yaml").write_text(f"flows: [{flow}]\nduration_s: 0.5\nwarmup_s: 0\n")
    assert run(("bench", "--url", fake.url, "--load", "load.yaml")) == 0
    (tmp_path / "load.yaml").write_text("flows: []\nspeed: 3\n")
    assert run(("bench", "--url", fake.url, "--load", "load.yaml")) == 1


def test_no_server_is_an_error(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(("bench", "--url", "127.0.0.1:1", "--model", "llm", "--duration", "1", "--warmup", "0")) == 1
    assert "error:" in capsys.readouterr().err
    assert run(("runs",)) == 1
    assert "no run was recorded" in capsys.readouterr().err


def test_a_run_without_a_single_answer_fails(tmp_path, capsys):
    with FakeTriton({"llm": FakeModel(reply=["w"], first_token_s=0.3)}) as fake:
        words = ("--url", fake.url, "--model", "llm", "--duration", "1", "--warmup", "0", "--timeout", "0.1")
        assert run(("bench", *words, "--runs", str(tmp_path / "r.sqlite"))) == 1
    said = capsys.readouterr()
    assert "100.0% timeouts" in said.out  # shown all the same
    assert "requests was answered in full" in said.err


def test_another_servers_model_is_asked_for_only_where_it_is_not_told(fake, tmp_path, capsys):
    runs = ("--runs", str(tmp_path / "r.sqlite"))
    assert run(("bench", "--url", fake.url, *runs)) == 1
    assert "--model NAME" in capsys.readouterr().err  # the fake has no repository index
    assert run(("bench", "--url", fake.url, "--model", "llm", "--mix", *runs)) == 1
    assert "--vision-model NAME" in capsys.readouterr().err
    assert run(("bench", "--url", "127.0.0.1:9", *runs)) == 1
    said = capsys.readouterr().err
    assert "no server answers at 127.0.0.1:9" in said
    assert "--model" not in said


def test_what_another_server_lists_is_taken_or_offered(monkeypatch):
    server = MeasuredServer("there:8001")
    monkeypatch.setattr(MeasuredServer, "models", lambda self: ["chat"])
    assert the_model(server, None) == "chat"
    monkeypatch.setattr(MeasuredServer, "models", lambda self: ["chat", "pages"])
    with pytest.raises(MeasureError) as told:
        the_model(server, None)
    assert told.value.remedies == ("--model chat", "--model pages")


@pytest.mark.parametrize(
    "words", [("--slo-ttft", "0.1"), ("--users", "7"), ("--duration", "9"), ("--model", "llm"), ("--mix",)]
)
def test_what_a_load_file_would_not_heed_is_refused(fake, tmp_path, capsys, words):
    path = tmp_path / "load.yaml"
    path.write_text("flows: []")
    assert run(("bench", "--url", fake.url, "--load", str(path), *words)) == 2
    assert f"would not heed {words[0]}" in capsys.readouterr().err


def test_vision_options_without_mix_are_refused(fake, capsys):
    assert run(("bench", "--url", fake.url, "--model", "llm", "--vision-shape", "closed:1")) == 2
    assert "only --mix heeds --vision-shape" in capsys.readouterr().err


def test_a_load_file_says_which_field_is_wrong_and_no_more(fake, tmp_path, capsys):
    path = tmp_path / "load.yaml"
    traffic = "{kind: text, name: a, input_tokens: 1, output_tokens: 1, typo: 1}"
    path.write_text(f"flows: [{{model: llm, shape: {{kind: closed, users: 1}}, traffic: [{traffic}]}}]")
    assert run(("bench", "--url", fake.url, "--load", str(path))) == 1
    said = capsys.readouterr().err
    assert f"{path}: flows.0.traffic.0.text.typo: there is no such field" in said
    assert "at least 1 item" not in said
    path.write_text("")
    assert run(("bench", "--url", fake.url, "--load", str(path))) == 1
    assert f"{path} describes no load" in capsys.readouterr().err


def test_two_forms_at_once_are_refused(capsys):
    assert run(("runs", "last", "--csv", "--json")) == 2
    assert "give one" in capsys.readouterr().err


def test_without_a_measured_request_nothing_is_diagnosed(tmp_path, capsys):
    """Answers that outlast a short load: it is no good sign that nothing stands out."""
    runs = ("--runs", str(tmp_path / "r.sqlite"))
    with FakeTriton({"llm": FakeModel(reply=[" w"] * 64, between_tokens_s=0.02)}) as fake:
        assert run(("diagnose", fake.url, "--model", "llm", "--duration", "0.5", *runs)) == 1
        told = capsys.readouterr()
        assert "stands out" not in told.out
        assert "what limits cannot be told" in told.err
        seconds = re.search(r"--duration (\d+)", told.err)
        assert seconds is not None
        assert run(("diagnose", fake.url, "--model", "llm", "--duration", seconds[1], *runs)) == 0
    assert "only" not in capsys.readouterr().err


def _requests(runs):
    with contextlib.suppress(MeasureError):
        return Store(runs).read("last").requests
    return []


@pytest.mark.slow
def test_a_run_that_is_interrupted_is_kept(tmp_path):
    runs = tmp_path / "runs.sqlite"
    with FakeTriton({"llm": FakeModel(reply=[" w"] * 50, between_tokens_s=0.01)}) as fake:
        words = (
            "--url",
            fake.url,
            "--model",
            "llm",
            "--traffic",
            "8/8",
            "--duration",
            "200",
            "--warmup",
            "0.1",
        )
        command = [sys.executable, "-m", "trtbuild", "bench", *words, "--runs", str(runs)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        deadline_s = time.monotonic() + 60
        while time.monotonic() < deadline_s and not _requests(runs):
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in complaint
    kept = Store(runs).read("last")
    assert (kept.state, kept.why) == ("interrupted", "stopped by its user")
    assert kept.requests
    assert kept.metrics["all"]["requests"] > 0
    assert f"interrupted: what was measured is kept: trtbuild runs {kept.run_id}" in complaint
