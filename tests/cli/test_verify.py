"""``trtbuild verify``: against a real server, and what it says of servers that do not do what they should."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.plans import llm_plan, ocr_plan, plan_of

from trtbuild.build.engine_log import parse_log
from trtbuild.doctor.prometheus import Metrics, parse_metrics
from trtbuild.plan.model import LedgerItem
from trtbuild.verify import checks
from trtbuild.verify.account import account
from trtbuild.verify.checks import Bench, check_cancel, check_page, check_prefix, check_stream
from trtbuild.verify.page import PAGE

GIB = 1 << 30


class FakeBench(Bench):
    """A server whose gauges are those of a list, the last of which stays."""

    scrapes: list[str]

    def metrics(self) -> Metrics:
        return parse_metrics(self.scrapes.pop(0) if len(self.scrapes) > 1 else self.scrapes[0])


def gauges(**blocks: float) -> str:
    lines = [f'nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type="{kind}",model="e"}} {value}'
             for kind, value in blocks.items()]  # fmt: skip
    return "\n".join(lines)


class Answer:
    """A stream of texts."""

    def __init__(self, *texts: str) -> None:
        self._texts = texts
        times = SimpleNamespace(first_token_s=0.1, total_s=0.2)
        usage = SimpleNamespace(completion_tokens=8, prompt_tokens=10)
        self.completion = SimpleNamespace(timings=times, usage=usage)

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, *_: object) -> None:
        """Cancels."""

    def text_deltas(self) -> Iterator[str]:
        yield from self._texts


def bench(*scrapes: str, texts: tuple[str, ...] = ("a", "b"), page: tuple[str, ...] = PAGE) -> FakeBench:
    lines = [SimpleNamespace(text=text) for text in page]
    client: Any = SimpleNamespace(
        stream=lambda *_, **__: Answer(*texts), ocr=lambda *_: SimpleNamespace(lines=lines)
    )
    made = FakeBench(client, "nowhere")
    object.__setattr__(made, "scrapes", list(scrapes) or [""])
    return made


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "WAIT_S", 0.2)
    monkeypatch.setattr(checks, "_POLL_S", 0.01)


def test_an_answer_in_one_piece_is_no_stream() -> None:
    assert check_stream(bench(), llm_plan(), "e").state == "passed"
    found = check_stream(bench(texts=("all at once",)), llm_plan(), "e")
    assert (found.state, found.detail) == ("failed", "8 tokens came in one piece: no streaming")


def test_blocks_that_are_kept_after_a_cancel_are_a_failure() -> None:
    given_back = bench(gauges(used=2), gauges(used=9), gauges(used=2))
    found = check_cancel(given_back, llm_plan(), "e")
    assert (found.state, found.detail) == ("passed", "7 KV blocks, all given back")
    kept = check_cancel(bench(gauges(used=2), gauges(used=9)), llm_plan(), "e")
    assert kept.state == "failed"
    assert "9 KV blocks are in use" in kept.detail
    assert check_cancel(bench(""), llm_plan(), "e").state == "skipped"


def test_a_prefix_that_is_computed_again_is_a_failure() -> None:
    assert check_prefix(bench(gauges(reused=1), gauges(reused=5)), llm_plan(), "e").state == "passed"
    assert check_prefix(bench(gauges(reused=1)), llm_plan(), "e").state == "failed"
    silent = check_prefix(bench(""), llm_plan(), "e")
    assert silent.state == "skipped"
    assert "no count of reused blocks" in silent.detail
    assert check_prefix(bench(""), llm_plan(kv_reuse=False), "e").state == "skipped"


def test_a_page_that_is_misread_is_a_failure() -> None:
    pytest.importorskip("PIL")
    assert check_page(bench(), ocr_plan(), "ocr").state == "passed"
    found = check_page(bench(page=("something else",)), ocr_plan(), "ocr")
    assert (found.state, found.detail) == ("failed", "5 of 5 lines were misread")


def test_the_account_is_held_against_the_engines_log_and_the_driver() -> None:
    log = parse_log(
        "Loaded engine size: 5000 MiB\n[MemUsageChange] Allocated 400.00 MiB for execution context memory.\n"
        "[MemUsageChange] Allocated 40.00 MB GPU memory for runtime buffers.\n"
        "[MemUsageChange] Allocated 40.00 MB GPU memory for decoder.\n"
        "[MemUsageChange] Allocated 8.00 GiB for max tokens in paged KV cache (149792).\n"
    )
    lines = account(plan_of(llm_plan()), server_pid=0, shm_prefix="", log=log, gpu=[{"used_bytes": 20 * GIB}])
    found = {line.item: line for line in lines}
    assert found["qwen-7b weights"].holds  # 5000 MiB, and 5.6 GB were planned
    assert not found["qwen-7b activations"].holds  # 400 MiB, and 300 MB were planned
    assert found["qwen-7b buffers"].found_bytes == 80 << 20
    assert found["qwen-7b KV pool"].found_bytes == 8 * GIB
    assert found["everything on the GPU"].source == "nvidia-smi"


def loaded(weights_mib: int, batch: int, kv_gib: float) -> str:
    return (
        f"TRTGptModel maxBatchSize: {batch}\nTRTGptModel maxNumTokens: 2048\n"
        f"Loaded engine size: {weights_mib} MiB\n"
        "[MemUsageChange] Allocated 200.00 MiB for execution context memory.\n"
        "[MemUsageChange] Allocated 20.00 MB GPU memory for runtime buffers.\n"
        "[MemUsageChange] Allocated 20.00 MB GPU memory for decoder.\n"
        f"[MemUsageChange] Allocated {kv_gib:.2f} GiB for max tokens in paged KV cache (1000).\n"
    )


def items(*models: Any, log: str, **more: Any) -> dict[str, Any]:
    plan = plan_of(*models)
    lines = account(plan, server_pid=0, shm_prefix="", log=parse_log(log), gpu=[], **more)
    return {line.item: line for line in lines}


def test_several_engines_are_each_held_against_their_own_model_item_by_item() -> None:
    small, large = llm_plan("small", weights_bytes=2 << 30, kv_bytes=GIB), llm_plan("large")
    found = items(small, large, ocr_plan(), log=loaded(5300, 32, 7.5) + loaded(2040, 32, 2.0))
    assert len(found) == 8
    assert found["large KV pool"].found_bytes == 7.5 * GIB
    assert found["large KV pool"].holds
    assert not found["small KV pool"].holds  # 2 GiB, and 1 GiB was planned
    assert found["small weights"].found_bytes == 2040 << 20


def test_models_of_one_size_are_told_apart_by_their_limits_or_left_out() -> None:
    one, other = llm_plan("one"), llm_plan("other", max_batch_size=8, kv_bytes=GIB)
    found = items(one, other, log=loaded(5300, 8, 1.0) + loaded(5300, 32, 7.0))
    assert (found["one KV pool"].found_bytes, found["other KV pool"].found_bytes) == (7 * GIB, GIB)
    assert all(line.holds for line in found.values())
    silent = loaded(5300, 32, 7.0).split("\n", 2)[2]
    assert items(one, other, log=silent) == {}  # it may be either, and a wrong comparison proves nothing
    twins = items(llm_plan("one"), llm_plan("other"), log=loaded(5300, 32, 7.0) * 2)
    assert len(twins) == 8  # their plans are the same


def test_an_engine_that_was_loaded_again_counts_once_as_it_is_now() -> None:
    found = items(llm_plan("one"), log=loaded(5300, 32, 3.0) + loaded(5300, 32, 7.0))
    assert found["one KV pool"].found_bytes == 7 * GIB


def test_the_servers_own_process_is_held_against_what_is_no_engines() -> None:
    rows = [
        LedgerItem(item="CUDA contexts of engines", bytes=5 * GIB, why=""),
        LedgerItem(item="CUDA context of the server", bytes=GIB, why=""),
        LedgerItem(item="ocr_det weights", bytes=GIB, why="", model="ocr"),
        LedgerItem(item="a KV pool", bytes=9 * GIB, why="", model="a"),
        LedgerItem(item="reserve", bytes=GIB, why=""),
    ]
    plan = plan_of(llm_plan("a"), llm_plan("b"), ocr_plan()).model_copy(update={"ledger": tuple(rows)})
    (line,) = account(plan, server_pid=0, shm_prefix="", log=(), gpu=[], server_gpu_bytes=3 * GIB)
    assert (line.planned_bytes, line.holds) == (2 * GIB, False)
    alone = plan_of(llm_plan("a"))
    assert account(alone, server_pid=0, shm_prefix="", log=(), gpu=[], server_gpu_bytes=3 * GIB) == []


@pytest.mark.server
def test_a_real_server_is_verified_and_the_file_tells_all(tmp_path: Path) -> None:
    from tests.support.engine_repo import smollm2_gguf

    smollm2_gguf()  # skips where the package is not installed
    environment = {**os.environ, "TRTBUILD_STATE": str(tmp_path / "state")}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "trtbuild", *words], capture_output=True, text=True, check=False,
            timeout=280, cwd=tmp_path, env=environment,
        )  # fmt: skip

    built = run("--model", "smollm2-135m", "--quant", "int4", "--target", "local", "--with", "ocr",
                "--max-input", "512", "--max-output", "256", "--concurrency", "2")  # fmt: skip
    assert built.returncode == 0, built.stderr
    done = run("verify")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "verified.json").read_text())
    assert report["passed"]
    states = {(check["name"], check["model"]): check["state"] for check in report["checks"]}
    # The CPU engine counts no reused blocks, so that time tells; a busy machine may hide it.
    assert states.pop(("prefix", "smollm2-135m")) in ("passed", "skipped")
    assert states == {
        ("load", ""): "passed",
        ("stream", "smollm2-135m"): "passed",
        ("cancel", "smollm2-135m"): "passed",
        ("longest", "smollm2-135m"): "passed",
        ("page", "ocr"): "passed",
        ("account", ""): "passed",
    }
    assert {line["item"] for line in report["account"]} >= {"smollm2-135m", "ocr", "tritonserver"}
    assert str(tmp_path) not in json.dumps(report["checks"])
    assert run("status").returncode == 1  # the server that was started for it is gone
