"""Servers by their answers: what is judged from configs, metrics and logs."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tritonstream.testing import FakeTriton
from trtbuild.cli import run
from trtbuild.doctor.live import LiveFacts, LiveModel
from trtbuild.doctor.live_checks import check_live
from trtbuild.doctor.prometheus import parse_metrics


def parameters(**values: str) -> dict[str, dict[str, str]]:
    return {key: {"string_value": value} for key, value in values.items()}


def engine(**values: str) -> LiveModel:
    chosen = {"gpt_model_type": "inflight_fused_batching", **values}
    config = {
        "backend": "tensorrtllm", "max_batch_size": 8, "parameters": parameters(**chosen),
        "model_transaction_policy": {"decoupled": True},
    }  # fmt: skip
    return LiveModel("tensorrt_llm", config)


KV = 'nv_trt_llm_kv_cache_block_metrics{model="tensorrt_llm",version="1",kv_cache_block_type="%s"} %s'
HEALTHY = "\n".join(
    [
        "# HELP nv_inference_request_success Number of successful requests",
        'nv_inference_request_success{model="tensorrt_llm",version="1"} 20',
        'nv_inference_first_response_histogram_ms_count{model="tensorrt_llm",version="1"} 20',
        'nv_trt_llm_inflight_batcher_metrics{model="tensorrt_llm",version="1",'
        'inflight_batcher_specific_metric="generation_requests"} 3',
        KV % ("max", 1429), KV % ("used", 100), KV % ("tokens_per", 64), KV % ("reused", 7),
    ]
)  # fmt: skip


def judged(
    *models: LiveModel, text: str | None = HEALTHY, log: str = "", ready: bool = True
) -> dict[str, str]:
    facts = LiveFacts(ready, models, parse_metrics(text) if text is not None else None, log)
    return {f"{item.check} {item.state}": item.found for item in check_live(facts)}


def test_a_healthy_server():
    found = judged(engine())
    assert {key for key in found if not key.endswith(" ok")} == {"calls info"}
    assert "streaming models: tensorrt_llm" in found["calls info"]
    assert found["batching ok"] == "tensorrt_llm batches in flight: 3 requests generate now"
    assert "100 of 1429 KV blocks are used (7 %), 7 blocks reused" in found["kv ok"]


def test_static_batching():
    assert "gpt_model_type V1" in judged(engine(gpt_model_type="V1"))["batching error"]


def test_bls_instances_limit_the_engine():
    bls = LiveModel("tensorrt_llm_bls", {"backend": "python", "instance_group": [{"count": 2}]})
    assert (
        "2 instances of tensorrt_llm_bls limit tensorrt_llm to 2 of 8"
        in judged(engine(), bls)["batching warning"]
    )


def test_a_length_that_was_cut_at_load():
    """The log of server issue 7664."""
    log = (
        "[W] maxAttentionWindow and maxSequenceLen are too large for at least one sequence; reduced to 91456"
    )
    assert "91456 tokens" in judged(engine(), log=log)["lengths warning"]


def test_a_front_that_promises_more_than_the_cache_holds():
    """1429 blocks of 64 tokens are 91456."""
    front = LiveModel(
        "q",
        {"backend": "python", "parameters": parameters(engine_model="tensorrt_llm", max_seq_len="131072")},
    )
    assert "91456 tokens" in judged(engine(), front)["lengths error"]


def test_a_full_cache_and_one_without_hits():
    full = HEALTHY.replace('type="used"} 100', 'type="used"} 1429') + (
        '\nnv_trt_llm_request_metrics{model="tensorrt_llm",version="1",request_type="waiting"} 4'
    )
    assert "4 requests wait" in judged(engine(), text=full)["kv warning"]
    cold = HEALTHY.replace('type="reused"} 7', 'type="reused"} 0')
    assert "none of 20 requests" in judged(engine(enable_kv_cache_reuse="true"), text=cold)["kv warning"]
    assert "kv warning" not in judged(engine(), text=cold)


def test_series_that_stay_at_zero_or_are_missing():
    zero = HEALTHY + '\nnv_inference_compute_infer_duration_us{model="tensorrt_llm",version="1"} 0'
    assert "stays at 0 after 20 requests" in judged(engine(), text=zero)["series info"]
    without = "\n".join(line for line in HEALTHY.splitlines() if "histogram" not in line)
    assert "no time to first token" in judged(engine(), text=without)["series info"]
    none = "\n".join(line for line in HEALTHY.splitlines() if "batcher" not in line)
    assert "exports no" in judged(engine(), text=none)["batching warning"]


def test_preprocessing_is_the_bottleneck():
    """20 requests: 100 ms in the queue and 10 ms of work each."""
    text = "\n".join(
        f'{name}{{model="pre",version="1"}} {value}'
        for name, value in (
            ("nv_inference_request_success", 20),
            ("nv_inference_queue_duration_us", 2_000_000),
            ("nv_inference_compute_infer_duration_us", 200_000),
        )
    )
    found = judged(LiveModel("pre", {"backend": "python", "instance_group": [{"count": 1}]}), text=text)
    assert "wait 100.0 ms for 10.0 ms of work" in found["queue warning"]


def test_streaming_models_called_the_wrong_way():
    log = "E1 [400] HTTP end point doesn't support models with decoupled transaction policy\n" * 3
    assert "3 calls" in judged(engine(), log=log)["calls warning"]
    text = 'nv_inference_request_failure{model="tensorrt_llm",version="1",reason="OTHER"} 5'
    assert "all 5 requests" in judged(engine(), text=text)["calls warning"]


def test_a_model_that_did_not_load_and_a_closed_metrics_port():
    found = judged(LiveModel("m", state="UNAVAILABLE", reason="bad config"), text=None, ready=False)
    assert "models error" in found
    assert "metrics warning" in found


class _Triton(BaseHTTPRequestHandler):
    """Answers as a server with one engine does."""

    ready = 200

    def do_GET(self) -> None:
        bodies = {
            "/v2/health/ready": "",
            "/v2/models/tensorrt_llm/config": json.dumps(engine().config),
            "/metrics": HEALTHY,
        }
        status = self.ready if self.path == "/v2/health/ready" else 200
        self._answer(status if self.path in bodies else 404, bodies.get(self.path, ""))

    def do_POST(self) -> None:
        self._answer(200, json.dumps([{"name": "tensorrt_llm", "version": "1", "state": "READY"}]))

    def _answer(self, status: int, body: str) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Silent."""


@pytest.fixture
def address():
    server = HTTPServer(("127.0.0.1", 0), _Triton)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_doctor_asks_a_live_server(address, capsys):
    run(["doctor", "--url", address, "--metrics", address, "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert {"check": "models", "state": "ok", "found": "ready: tensorrt_llm", "remedy": ""} in rows
    assert any(row["check"] == "batching" and row["state"] == "ok" for row in rows)


def test_requests_that_wait_beside_a_single_one():
    """F10: the batch stays at one request."""
    one = HEALTHY + "".join(
        f'\nnv_trt_llm_request_metrics{{model="tensorrt_llm",version="1",request_type="{kind}"}} {value}'
        for kind, value in (("max", 8), ("scheduled", 1), ("waiting", 5))
    )
    assert "runs 1 of 8 requests at this moment; 5 wait" in judged(engine(), text=one)["batching info"]


def test_what_answers_may_be_no_triton_server(address, capsys):
    assert run(["doctor", "--url", f"{address}/metrics/x", "--metrics", address]) == 0
    assert run(["doctor", "--url", f"http://{address}", "--metrics", f"http://{address}/metrics"]) == 0
    _Triton.ready = 404
    try:
        capsys.readouterr()
        assert run(["doctor", "--url", address]) == 1
    finally:
        _Triton.ready = 200
    assert "no Triton server (status 404)" in capsys.readouterr().err


def test_a_grpc_port_is_told_from_one_of_http(capsys):
    with FakeTriton({}) as server:
        assert run(["doctor", "--url", server.url]) == 1
    assert "speaks no HTTP" in capsys.readouterr().err
    assert run(["doctor", "--url", "a b:1"]) == 1
    assert "no server answers" in capsys.readouterr().err


def test_nothing_answers(capsys):
    assert run(["doctor", "--url", "127.0.0.1:9"]) == 1
    assert "no server answers" in capsys.readouterr().err
