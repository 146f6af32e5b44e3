"""``trtbuild simulate``: tables, JSON, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from tests.support.simulated_run import LIMITS, TRUTH, few_streams, samples

from trtbuild.cli import run
from trtbuild.measure.load.spec import LoadSpec
from trtbuild.measure.predicted import offered_by
from trtbuild.measure.records.record import Record
from trtbuild.measure.records.store import Store
from trtbuild.plan.latency.forecast import System, predicted
from trtbuild.plan.latency.replica import Limits
from trtbuild.prepare import prepare
from trtbuild.spec import DeploymentSpec, LlmSpec, Target

L4 = ["simulate", "--model", "qwen-7b", "--quant", "awq", "--gpu", "l4", "--requests", "100"]


def test_levels_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*L4, "--rate", "0.5", "--users", "4", "--price", "0.8", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    slow, users = data["levels"]
    assert slow["level"] == {"rate": 0.5, "users": None}
    assert users["level"] == {"rate": None, "users": 4}
    first = slow["ttft_s"]["95"]
    assert 0 < first["low"] < first["value"] < first["high"]
    per_s = slow["tokens_out_per_s"]["value"]
    assert slow["cost_per_million_tokens"] == pytest.approx(0.8 / 3600 / per_s * 1e6)
    assert any("published figure" in text for text in data["notes"])


def test_few_tokens_a_second_are_shown_and_a_price_says_of_what(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run([*L4, "--rate", "0.01", "--osl", "20", "--price", "0.8"]) == 0
    shown = capsys.readouterr().out
    assert "cost of 1M tokens out" in shown
    cells = next(line for line in shown.splitlines() if line.lstrip().startswith("0.01/s")).split()
    assert any(0.1 < float(cell) < 0.35 for cell in cells if re.fullmatch(r"0\.\d+", cell))


@pytest.mark.parametrize(
    ("option", "needs"), [(["--think", "2"], "--users"), (["--prefixes", "3"], "--shared-prefix")]
)
def test_an_option_that_would_do_nothing_is_refused(
    option: list[str], needs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*L4, "--rate", "1", *option]) == 2
    assert needs in capsys.readouterr().err


def test_many_users_are_each_asked_more_than_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*L4, "--users", "150", "--spread", "0", "--osl", "20", "--json"]) == 0
    (level,) = json.loads(capsys.readouterr().out)["levels"]
    # Little's law: users wait for N / throughput; of a first round alone, half of that on average.
    answered_s = 150 / level["requests_per_s"]
    assert level["ttft_s"]["50"]["value"] > 0.7 * answered_s


def test_a_budget_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*L4, "--ttft-ms", "800", "--rate", "1", "--fleet-rate", "8", "--explain"]) == 0
    out = capsys.readouterr().out
    assert "TTFT P95 ≤ 800 ms: up to" in out
    assert "max_batch_size" in out
    assert "8 requests a second:" in out
    assert "reads 3.47 GB of weights each step" in out


def test_a_budget_that_cannot_be_kept(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*L4, "--ttft-ms", "1", "--rate", "1"]) == 0
    assert "not even one request alone keeps it; the nearest is" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--fleet-rate", "5"], "give --ttft-ms too"),
        (["--pictures", "5"], "belong together"),
        (["--shared-prefix", "600"], "leaves nothing of a prompt of 500 tokens"),
    ],
)
def test_wrong_usage(options: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*L4, *options]) == 2
    assert words in " ".join(capsys.readouterr().err.replace("│", "").split())


def test_a_cpu_needs_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "--model", "smollm2-135m", "--quant", "int4", "--target", "local"]) == 1
    assert "--from-run RUN" in capsys.readouterr().err


def test_what_does_not_fit_is_not_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "--model", "llama-3.1-70b", "--quant", "bf16", "--gpu", "l4"]) == 1
    assert "what does not fit cannot be simulated" in capsys.readouterr().err


def test_slots_longer_than_the_loads_requests_are_a_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["simulate", "--model", "llama-3.1-8b", "--quant", "fp8", "--gpu", "h100", "--concurrency", "999"]
    assert run([*asked, "--isl", "128", "--osl", "64", "--spread", "0"]) == 1
    assert "--max-input 128 --max-output 64: as long as" in capsys.readouterr().err
    assert run([*asked, "--isl", "3000", "--osl", "3000"]) == 1
    assert "as long as requests of this load" not in capsys.readouterr().err


def load_of(shape: str, **fields: object) -> str:
    traffic = [{"kind": "text", "name": name, "input_tokens": isl, "output_tokens": osl}
               for name, isl, osl in (("short", 40, 20), ("long", 500, 9))]  # fmt: skip
    flow = {"model": "smollm2-135m", "shape": yaml.safe_load(shape), "traffic": traffic}
    return yaml.safe_dump({"flows": [flow], "duration_s": 40.0, "warmup_s": 4.0, **fields})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with one run of few streams on a server whose costs are known."""
    llm = LlmSpec(model="smollm2-135m", quant="int4")
    plan = prepare(DeploymentSpec(models=(llm,), target=Target.LOCAL)).plan
    record = Record(load={"flows": []}, run_id="ca11b4a7", label="few", state="complete")
    record.deployment = {"plan": plan.model_dump(mode="json"), "models": ["smollm2-135m"]}
    record.requests = samples(few_streams(), "smollm2-135m")
    record.duration_s = max(one.end_s or 0.0 for one in record.requests)
    record.window_s = (0.0, record.duration_s)
    path = tmp_path_factory.mktemp("runs") / "runs.sqlite"
    Store(path).put(record)
    return path


@pytest.mark.parametrize("shape", ["{kind: closed, users: 16}", "{kind: poisson, rate_per_s: 4}"])
def test_a_run_of_few_streams_predicts_a_load_of_many(
    shape: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "load.yaml"
    file.write_text(load_of(shape))
    options = ["--from-run", "few", "--runs", str(runs), "--load", str(file), "--json"]
    assert run(["simulate", *options]) == 0
    data = json.loads(capsys.readouterr().out)
    assert any("calibrated on 480 answers of run ca11b4a7, at most" in text for text in data["notes"])
    (level,) = data["levels"]
    limits = Limits(max_batch_size=32, max_num_tokens=2048, kv_tokens=LIMITS.kv_tokens, tokens_per_block=32)
    load = LoadSpec.model_validate(yaml.safe_load(file.read_text()))
    truth = predicted(System(TRUTH, limits), *offered_by(load))
    assert level["requests"] == pytest.approx(truth.requests, rel=0.05)
    assert level["tokens_out_per_s"]["value"] == pytest.approx(truth.tokens_out_per_s.value, rel=0.05)
    assert level["ttft_s"]["50"]["value"] == pytest.approx(truth.ttft_s[50].value, rel=0.15)
    assert level["tpot_s"]["50"]["value"] == pytest.approx(truth.tpot_s[50].value, rel=0.1)


def test_the_load_to_calibrate_with_is_one_that_bench_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "calibration.yaml"
    model = ["--model", "smollm2-135m", "--quant", "int4", "--target", "local", "--max-input", "300"]
    assert run(["simulate", *model, "--calibration-load", str(file)]) == 0
    load = LoadSpec.model_validate(yaml.safe_load(file.read_text()))
    assert load.duration_s <= 300
    (flow,) = load.flows
    assert flow.model == "smollm2-135m"
    assert flow.shape.kind == "closed"
    assert flow.shape.users <= 4
    lengths = [one.input_tokens for one in flow.traffic if one.kind == "text"]
    assert min(lengths) == 1
    assert 100 < max(lengths) <= 300
    assert f"--load {file}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (load_of("{kind: closed, users: 2}", warmup_s=90.0), "leaves nothing of 40 s"),
        (load_of("{kind: constant, rate_per_s: 0.02}", warmup_s=10.0), "none comes after its warm-up"),
        ("flows: []", "flows"),
        ("}", "is not YAML"),
    ],
)
def test_loads_that_cannot_be_predicted(
    text: str, words: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "load.yaml"
    file.write_text(text)
    assert run(["simulate", "--from-run", "few", "--runs", str(runs), "--load", str(file)]) == 1
    assert words in " ".join(capsys.readouterr().err.split())


def test_prompts_of_a_file_have_no_known_length(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traffic = "{kind: file, name: own, path: prompts.jsonl}"
    flow = f"{{model: smollm2-135m, shape: {{kind: closed, users: 1}}, traffic: [{traffic}]}}"
    file = tmp_path / "load.yaml"
    file.write_text(f"flows: [{flow}]\n")
    assert run(["simulate", "--from-run", "few", "--runs", str(runs), "--load", str(file)]) == 1
    assert "the requests of own have is not known" in " ".join(capsys.readouterr().err.split())


def test_runs_that_are_not_there_or_not_whole(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", "--from-run", "nobody", "--runs", str(runs)]) == 1
    assert "has no run 'nobody'" in capsys.readouterr().err
    record = Store(runs).read("few")
    record.state, record.why = "server died", "no answer since 3.0 s"
    other = Store(tmp_path / "died.sqlite")
    other.put(record)
    assert run(["simulate", "--from-run", "few", "--runs", str(other.path)]) == 1
    assert "is server died: nothing is calibrated on a part of a run" in capsys.readouterr().err


B200 = [
    *("simulate", "--model", "llama-3.3-70b", "--quant", "nvfp4", "--gpu", "b200", "--spread", "0"),
    *("--isl", "1000", "--osl", "1000", "--max-input", "1000", "--max-output", "1000", "--requests", "2000"),
]


def test_what_does_not_fit_is_named_with_what_would(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*B200, "--users", "256", "--concurrency", "256"]) == 1
    said = capsys.readouterr().err
    assert "GiB too little" in said
    largest = int(re.search(r"--concurrency (\d+) ", said)[1])  # type: ignore[index]
    assert run([*B200, "--users", "8", "--concurrency", str(largest), "--json"]) == 0
    assert run([*B200, "--users", "8", "--concurrency", str(largest + 1), "--json"]) == 1


def test_more_slots_than_the_pool_carries_are_simulated_and_wait(capsys: pytest.CaptureFixture[str]) -> None:
    def said(*options: str) -> tuple[float, str]:
        assert run([*B200, *options, "--json"]) == 0
        (level,) = json.loads(capsys.readouterr().out)["levels"]
        assert run([*B200, *options]) == 0
        return level["mean_batch"], " ".join("".join(capsys.readouterr()).split())

    batch, text = said("--users", "256", "--max-batch-size", "256")
    assert 140 < batch < 200
    assert "the KV pool limits" in text
    assert "the batch has 256 places" in text
    batch, text = said("--users", "64", "--concurrency", "32")
    assert batch <= 32
    assert "nearly all 32 places of the batch are taken" in text
    assert "--concurrency" in text
    assert "limits" not in said("--users", "8", "--concurrency", "32")[1]


def test_explain_says_nothing_twice(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*L4, "--rate", "1", "--explain"]) == 0
    captured = capsys.readouterr()
    lines = [line for line in (captured.out + captured.err).splitlines() if line.strip()]
    assert len(lines) == len(set(lines))
    assert sum("published figure" in line for line in lines) == 1


def test_slots_that_leave_no_room_for_the_pool_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    slots = ["--users", "64", "--max-batch-size", "4096"]
    assert run([*L4, *slots]) == 0
    said = capsys.readouterr().err
    assert "the KV pool limits" in said
    assert "where the model takes one (--kv-dtype)" in said  # this one takes no fp8
    llama = ["simulate", "--model", "llama-3.1-8b", "--gpu", "h100", "--quant", "fp8", "--requests", "100"]
    assert run([*llama, *slots, "--kv-dtype", "fp8", "--isl", "100000"]) == 0
    said = capsys.readouterr().err
    assert "the KV pool limits" in said
    assert "--kv-dtype" not in said  # it is that already


@pytest.mark.parametrize(
    "option", [["--requests", "100000000000"], ["--replicas", "1000000"], ["--price", "1e308"]]
)
def test_counts_that_no_machine_simulates_are_usage_errors(
    option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", "--model", "qwen-7b", "--gpu", "l4", *option]) == 2
    assert option[0] in capsys.readouterr().err
