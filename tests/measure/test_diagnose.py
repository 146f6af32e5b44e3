"""What limits a server, from records whose cause is known."""

from __future__ import annotations

import pytest
from tests.measure.test_records import LOAD, record, sample

from trtbuild.measure.diagnose import diagnose
from trtbuild.measure.metrics import summarise


def run_of(requests=100, *, ttft_s=0.1, step_s=0.01, tokens=20, server=None, load=LOAD, **fields):
    made = record([], load=load)
    made.deployment = {"models": ["m"]}
    made.requests = [
        sample(n, begin_s=n * 0.5, ttft_s=ttft_s, step_s=step_s, tokens=tokens, **fields)
        for n in range(requests)
    ]
    rows = server or {}
    made.timeline = [
        (float(t_s), model, series, value if not callable(value) else value(t_s))
        for t_s in range(100)
        for (model, series), value in rows.items()
    ]
    made.metrics = summarise(made)
    return made


def names(made):
    return [limit.name for limit in diagnose(made)]


def test_a_full_engine_is_a_queue():
    server = {
        ("m_engine", "waiting"): 6.0, ("m_engine", "generation"): 4.0,
        ("m_engine", "success"): lambda t_s: 2 * t_s,
        ("m_engine", "kv_used"): 10.0, ("m_engine", "kv_max"): 100.0,
    }  # fmt: skip
    found = diagnose(run_of(ttft_s=3.2, server=server))
    assert found[0].name == "queue"
    assert "max_batch_size" in found[0].change
    # Little: 6 waiting / 2 a second = 3 s
    assert "3030 ms" in found[0].evidence or "3000 ms" in found[0].evidence


def test_a_full_pool_is_named_before_the_queue_that_it_makes():
    server = {
        ("m_engine", "waiting"): 1.0, ("m_engine", "generation"): 4.0,
        ("m_engine", "success"): lambda t_s: 2 * t_s,
        ("m_engine", "kv_used"): 97.0, ("m_engine", "kv_max"): 100.0,
    }  # fmt: skip
    found = diagnose(run_of(ttft_s=0.9, server=server))
    assert found[0].name == "KV cache"
    assert any("KV pool" in limit.change for limit in found if limit.name == "queue")


def test_long_answers_are_decode_and_long_prompts_prefill():
    assert names(run_of(ttft_s=0.05, step_s=0.05, tokens=100))[0] == "decode"
    assert names(run_of(ttft_s=2.0, step_s=0.01, tokens=10, prompt_tokens=4000))[0] == "prefill"
    # few tokens after a first that took four steps' time: nothing but steps
    assert names(run_of(ttft_s=0.4, step_s=0.1, tokens=4))[0] == "decode"


def test_a_busy_front_is_seen():
    assert "tokeniser and front" in names(run_of(server={("m", "cpu_cores"): 0.97}))


def test_batching_that_waits_for_nobody_is_seen():
    server = {
        ("ocr_rec", "executions"): lambda t_s: 10 * t_s, ("ocr_rec", "inferences"): lambda t_s: 10 * t_s,
        ("ocr_rec", "queue_us"): lambda t_s: 80_000 * t_s,
        ("ocr_rec", "compute_us"): lambda t_s: 100_000 * t_s,
    }  # fmt: skip
    found = next(limit for limit in diagnose(run_of(server=server)) if limit.name == "batching delay")
    assert "waits 8.0 ms an execution" in found.evidence


def test_long_and_short_prompts_in_one_queue_are_seen():
    traffic = [{"kind": "text", "name": name, "input_tokens": 10} for name in ("short", "long")]
    made = run_of(load={"flows": [{**LOAD["flows"][0], "traffic": traffic}]})
    for one in made.requests[::2]:
        one.traffic, one.prompt_tokens = "long", 2000
    for one in made.requests[1::2]:
        one.traffic = "short"
    made.metrics = summarise(made)
    assert "mixed lengths" in names(made)


def test_shared_prefixes_that_are_not_reused_are_seen():
    server = {
        ("m_engine", "kv_reused"): 0.0,
        ("m_engine", "kv_tokens_per_block"): 32.0,
        ("m_engine", "kv_max"): 99.0,
    }
    assert "low prefix hits" in names(run_of(server=server, prefix_tokens=500))
    hits = {**server, ("m_engine", "kv_reused"): lambda t_s: 16 * t_s}
    assert "low prefix hits" not in names(run_of(server=hits, prefix_tokens=500))


def test_failures_come_first():
    made = run_of()
    for one in made.requests[:30]:
        one.outcome, one.error = "error", "ServerError: out of blocks"
    found = diagnose(made)
    assert found[0].name == "failures"
    assert "out of blocks" in found[0].evidence


def test_nothing_is_said_without_a_request():
    assert diagnose(record([])) == []


def test_every_finding_has_evidence_and_a_change():
    for limit in diagnose(run_of(ttft_s=2.0, prompt_tokens=4000)):
        assert limit.evidence
        assert limit.change
        assert 0 < limit.weight <= 1


@pytest.mark.parametrize("share", [0.2, 0.95])
def test_a_generator_at_its_limit_is_told(share):
    made = run_of()
    made.generator = {
        "cpu_share": share,
        "send_error_max_s": 0.001,
        "sent": 55,
        "sent_late": 0,
        "loop_lag_max_s": 0.0,
    }
    assert ("load generator" in names(made)) == (share > 0.9)


def frozen(*, rate_per_s=3.0, begin_s=6.0, length_s=8.0, limit_s=5.0):
    """Requests of 20 tokens at a server that stands still for a while."""
    made = run_of(0)
    for n in range(60):
        at_s = n / rate_per_s
        one = sample(n, begin_s=at_s, ttft_s=0.18, step_s=0.06, tokens=4, prompt_tokens=20)
        if begin_s - 0.4 < at_s < begin_s + length_s:
            one = sample(n, begin_s=at_s, tokens=1)
            one.first_s, one.arrival_s, one.arrival_tokens = None, [], []
            one.outcome, one.end_s, one.error = "timeout", at_s + limit_s, "TotalTimeout: late"
        made.requests.append(one)
    made.metrics = summarise(made)
    return made


def test_a_standstill_is_found_and_no_prompt_is_blamed_for_it():
    found = diagnose(frozen())
    assert found[0].name == "standstill"
    # the last token before: 5.333 + 0.18 + 3 x 0.06 s; the first after: 14 + 0.18 s
    assert "gave nothing for 8.5 s, from 5.7 to 14.2 s" in found[0].evidence
    assert "prefill" not in [limit.name for limit in found]


def test_one_user_at_a_slow_server_is_no_standstill():
    made = run_of(20, ttft_s=0.4, step_s=0.1)
    assert "standstill" not in names(made)


def test_a_short_prompt_is_not_blamed_for_a_long_wait():
    # 20 tokens are at most 20 steps of 10 ms; the first token took 2 s
    found = names(run_of(ttft_s=2.0, step_s=0.01, tokens=10, prompt_tokens=20))
    assert found[0] == "waiting that no metric shows"
    # two steps before the first token are what every request has
    assert "prefill" not in names(run_of(ttft_s=0.1, step_s=0.05, tokens=3, prompt_tokens=20))
