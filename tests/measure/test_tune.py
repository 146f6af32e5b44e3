"""The search against a full grid, on servers whose goodput is a formula; knobs on real plans."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trtbuild.measure.tune.knobs import Knob, apply, knobs_of
from trtbuild.measure.tune.search import Trial, search
from trtbuild.plan.model import Plan
from trtbuild.prepare import prepare
from trtbuild.spec import DeploymentSpec, LlmSpec, VisionSpec
from trtbuild.targets import Host


def knob(name, values, begin):
    return Knob(name, values, begin, lambda spec, value: spec)


KNOBS = (
    knob("batch", (1, 2, 4, 8, 16, 32, 64), 16),
    knob("tokens", (256, 512, 1024, 2048, 4096), 2048),
    knob("kv", (0.5, 1.0, 2.0), 1.0),
    knob("chunked", (False, True), True),
)


def server(best, noise=()):
    """Goodput falls with the distance of each knob from its best value, in steps."""
    scatter = itertools.cycle(noise or (0.0,))

    def goodput(values):
        away = sum(
            abs(one.values.index(values.get(one.name, one.begin)) - one.values.index(value)) * weight
            for one, value, weight in zip(KNOBS, best, (1.0, 0.5, 0.3, 0.6), strict=True)
        )
        return 10 * math.exp(-0.3 * away)

    def measure(values):
        return Trial(values, goodput(values) * (1 + next(scatter)), 0.1)

    return measure, goodput


bests = st.tuples(*(st.sampled_from(one.values) for one in KNOBS))


@settings(max_examples=60)
@given(bests)
def test_it_comes_within_a_twentieth_of_the_grid_in_a_fifth_of_its_runs(best):
    measure, goodput = server(best, noise=(0.01, -0.01, 0.005))
    grid = len(list(itertools.product(*(one.values for one in KNOBS))))  # 7 · 5 · 3 · 2 = 210
    found = search(measure, KNOBS, most_trials=grid // 5)
    assert len(found.trials) <= grid // 5
    assert goodput(found.best.settings) >= 0.95 * 10


def test_noise_is_not_taken_for_help():
    measure, _ = server((16, 2048, 1.0, True), noise=(0.2, -0.2, 0.1, -0.1, 0.15))
    found = search(lambda values: measure({}), KNOBS, most_trials=40, repeats=3)
    assert found.noise >= 0.3
    assert found.best.settings == {}


def test_what_cannot_be_served_is_passed_over():
    measure, _ = server((4, 2048, 1.0, True))

    def sometimes(values):
        broken = values.get("tokens", 2048) > 2048
        return Trial(values, None, error="does not fit") if broken else measure(values)

    found = search(sometimes, KNOBS, most_trials=40)
    assert found.best.settings["batch"] == 4
    assert any(trial.error for trial in found.trials)


def test_where_nothing_meets_the_budget_the_fastest_is_found():
    def measure(values):
        return Trial(values, 0.0, 2.0 * values.get("batch", 16) / 16)

    found = search(measure, KNOBS[:1], most_trials=20)
    assert found.best.score == 0
    assert found.best.settings == {"batch": 1}


def test_the_number_of_trials_is_kept():
    measure, _ = server((1, 256, 0.5, False))
    assert len(search(measure, KNOBS, most_trials=5).trials) == 5


# Knobs


def planned(spec: DeploymentSpec) -> Plan:
    return prepare(spec, host=Host()).plan


@pytest.fixture(scope="module")
def spec():
    return DeploymentSpec(gpu="l4", models=(LlmSpec(model="qwen-7b", quant="awq"),), vision=(VisionSpec(),))


@pytest.fixture(scope="module")
def plan(spec):
    return planned(spec)


def test_every_knob_changes_the_plan_that_it_names(spec, plan):
    knobs = knobs_of(plan, "qwen-7b")
    assert {one.name.split(".")[1] for one in knobs} >= {
        "max_batch_size", "max_num_tokens", "kv_share", "instances", "chunked_context", "max_queue_delay_us",
    }  # fmt: skip
    for one in knobs:
        other = next(value for value in one.neighbours(one.begin) if value is not None)
        if one.name == "qwen-7b.instances":
            continue  # two engines do not fit an L4
        changed = planned(apply(spec, knobs, {one.name: other}))
        assert changed.models != plan.models, one.name
    assert apply(spec, knobs, {knobs[0].name: knobs[0].begin}) == spec


def test_a_smaller_step_takes_less_memory_and_a_whole_prompt_is_one_step(spec, plan):
    small = planned(
        spec.model_copy(update={"models": (spec.models[0].model_copy(update={"max_num_tokens": 512}),)})
    )
    assert small.llms[0].max_num_tokens == 512
    assert small.llms[0].activation_bytes < plan.llms[0].activation_bytes
    whole = spec.models[0].model_copy(update={"max_num_tokens": 512, "chunked_context": False})
    uncut = planned(spec.model_copy(update={"models": (whole,)}))
    assert uncut.llms[0].max_num_tokens == uncut.llms[0].max_input_tokens
    assert not uncut.llms[0].chunked_context
