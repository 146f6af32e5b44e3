"""Limits from a TTFT budget: they keep it where the memory alone would not, and what is given stays."""

from __future__ import annotations

import re

import pytest

from trtbuild.errors import PlanError
from trtbuild.plan.latency.forecast import forecast
from trtbuild.plan.latency.load import Lengths
from trtbuild.plan.latency.mix import Level, Mix
from trtbuild.prepare import Prepared, prepare
from trtbuild.simulate import deployment
from trtbuild.spec import DeploymentSpec, LlmSpec, Target
from trtbuild.targets import Host

SPEC = {"model": "qwen-7b", "quant": "awq"}


def spec_of(**more: object) -> DeploymentSpec:
    llm = LlmSpec.model_validate({**SPEC, **more})
    return DeploymentSpec(models=(llm,), gpu="a10", target=Target.ENGINE)


@pytest.fixture(scope="module")
def budgeted() -> Prepared:
    return prepare(spec_of(ttft_ms=700), host=Host())


def test_the_note_says_limits_rate_bars_and_what_memory_alone_would_allow(budgeted: Prepared) -> None:
    (note,) = [text for text in budgeted.notes if "TTFT P95 within 700 ms" in text]
    row = budgeted.plan.llms[0]
    assert f"max_batch_size {row.max_batch_size} and max_num_tokens {row.max_num_tokens} carry" in note
    found = re.search(r"carry ([\d.]+) requests a second \(([\d.]+) to ([\d.]+)\)", note)
    assert found
    rate, low, high = map(float, found.groups())
    assert 0 < low < rate < high
    assert "prompts of 500 and answers of 200 tokens" in note


def test_the_limits_keep_the_budget_at_the_rate_that_is_told(budgeted: Prepared) -> None:
    (note,) = [text for text in budgeted.notes if "TTFT P95 within 700 ms" in text]
    rate = float(re.search(r"carry ([\d.]+)", note)[1])  # type: ignore[index]
    row = budgeted.plan.llms[0]
    found = deployment(spec_of(concurrency=row.max_batch_size, max_num_tokens=row.max_num_tokens))
    mix = Mix(Lengths(500, 0.5, 2048), Lengths(200, 0.5, 512), limit=512)
    told = forecast(found.system, mix, Level(rate=0.97 * rate), requests=600)
    assert told.ttft_s[95].value <= 0.7
    over = forecast(found.system, mix, Level(rate=1.5 * rate), requests=600)
    assert over.ttft_s[95].value > 0.7


def test_the_spec_that_is_kept_has_the_limits_so_that_they_are_not_searched_again(budgeted: Prepared) -> None:
    (llm,) = budgeted.spec.models
    row = budgeted.plan.llms[0]
    assert (llm.concurrency, llm.max_num_tokens) == (row.max_batch_size, row.max_num_tokens)
    again = prepare(budgeted.spec, host=Host())
    assert again.plan.llms == budgeted.plan.llms


def test_a_limit_that_is_given_stays() -> None:
    found = prepare(spec_of(ttft_ms=700, concurrency=3), host=Host())
    assert found.plan.llms[0].max_batch_size == 3


def test_a_budget_that_nothing_meets_shows_the_nearest() -> None:
    with pytest.raises(PlanError, match=r"within 5 ms: the nearest is one user alone with \d+ ms \(\d+ to"):
        prepare(spec_of(ttft_ms=5), host=Host())


def test_the_cpu_of_which_nothing_is_known_is_measured_first() -> None:
    spec = DeploymentSpec(
        models=(LlmSpec(model="smollm2-135m", quant="int4", ttft_ms=500),), target=Target.LOCAL
    )
    with pytest.raises(PlanError, match="no figures of this machine's CPU") as error:
        prepare(spec)
    assert any("--from-run" in remedy for remedy in error.value.remedies)
