"""Percentiles, intervals and differences against values by hand and against simulation."""

from __future__ import annotations

import numpy as np
import pytest

from trtbuild.measure import stats


def test_least_counts():
    # 0.5^6 = 0.0156, 0.5^5 = 0.031; 0.9^36 = 0.0225; 0.95^72 = 0.0249; 0.99^368 = 0.0248
    assert [stats.least_count(q) for q in (0.5, 0.9, 0.95, 0.99)] == [6, 36, 72, 368]


def test_too_few_values_give_no_percentile_and_say_so():
    found = stats.percentile(list(range(100)), 0.99)
    assert found.value is None
    assert "P99 needs 368" in found.why
    assert "there are 100" in found.why


def test_the_interval_of_a_percentile_holds_the_true_one_as_often_as_it_says():
    rng = np.random.default_rng(3)
    true = -np.log(1 - 0.9)  # P90 of an exponential
    inside = 0
    for _ in range(400):
        found = stats.percentile(rng.exponential(size=200), 0.9)
        inside += found.low <= true <= found.high
    assert 0.92 <= inside / 400 <= 0.995


def test_neighbours_that_are_alike_count_for_less():
    rng = np.random.default_rng(5)
    alone = rng.normal(size=1000)
    blocks = np.repeat(rng.normal(size=100), 10)  # ρ = 0.9, worth 1000 · 0.1 / 1.9
    assert stats.effective_count(alone) > 850
    assert stats.effective_count(blocks) == pytest.approx(53, rel=0.5)
    wide, narrow = (stats.percentile(data, 0.5) for data in (blocks, alone))
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)


def test_constant_values_are_no_trouble():
    found = stats.percentile([0.25] * 50, 0.9)
    assert (found.value, found.low, found.high) == (0.25, 0.25, 0.25)


def test_wilson():
    # 5 of 50: 0.0435 to 0.2136 (Newcombe 1998, formula 3)
    found = stats.share(5, 50)
    assert (found.low, found.high) == (pytest.approx(0.0435, abs=5e-4), pytest.approx(0.2136, abs=5e-4))
    assert stats.share(0, 0).value is None


def test_a_steady_rate_has_a_narrow_interval():
    times = np.arange(0, 100, 0.1)
    found = stats.rate(times, [2.0] * len(times), (0.0, 100.0))
    assert found.value == pytest.approx(20)
    assert found.high - found.low < 0.5


def test_rates_count_only_the_window():
    assert stats.rate([1, 2, 3, 30], [1, 1, 1, 1], (0.0, 10.0)).value == pytest.approx(0.3)


def test_a_difference_is_found_and_none_is_not():
    rng = np.random.default_rng(11)
    a, b, slower = (rng.gamma(4, 0.05, 400) * factor for factor in (1, 1, 1.3))
    same = stats.quantile_difference(a, b, 0.5)
    changed = stats.quantile_difference(a, slower, 0.5)
    assert same.low < 0 < same.high
    assert 0 < changed.low < changed.value < changed.high
