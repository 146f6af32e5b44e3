"""Percentiles, intervals and differences against values by hand and against simulation."""

from __future__ import annotations

import numpy as np
import pytest

from trtbuild.measure import stats
from trtbuild.measure.censored import Curve, Observed, quantile


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


def observed(values, cut):
    return Observed(np.asarray(values, float), np.asarray(cut, bool))


def test_the_product_limit_of_a_published_trial():
    """Weeks in remission under 6-mercaptopurine (Freireich et al. 1963), Kalbfleisch and Prentice."""
    known, cut = [6, 6, 6, 7, 10, 13, 16, 22, 23], [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
    data = observed([*known, *cut], [False] * len(known) + [True] * len(cut))
    curve = Curve(data)
    left = dict(zip(curve.steps, 1 - curve.share, strict=True))
    assert [round(left[week], 3) for week in (6, 7, 10, 13, 16, 22, 23)] == [
        *(0.857, 0.807, 0.753, 0.690, 0.627, 0.538, 0.448)
    ]  # fmt: skip
    assert curve.quantile(0.5).value == 23
    late = curve.quantile(0.9)
    assert late.at_least
    assert late.value >= 23


def test_without_cut_values_a_quantile_is_the_usual_one():
    values = np.random.default_rng(2).gamma(2, 1, 57)
    for share in (0.0, 0.1, 0.5, 0.77, 0.99, 1.0):
        assert Curve(Observed.whole(values)).quantile(share).value == pytest.approx(
            np.quantile(values, share)
        )


def test_a_percentile_among_what_was_not_waited_for_is_a_bound():
    """40 answers up to 3.1 s and 15 that were given up after 5 s: P90 is one of the 15."""
    values = [*np.linspace(0.1, 3.1, 40), *[5.0] * 15]
    found = stats.percentile(observed(values, [False] * 40 + [True] * 15), 0.9)
    assert (found.value, found.at_least, found.high) == (5.0, True, None)
    middle = stats.percentile(observed(values, [False] * 40 + [True] * 15), 0.5)
    assert not middle.at_least
    assert middle.value == pytest.approx(np.quantile(values, 0.5))


def test_what_ended_at_once_weighs_nothing():
    answers = list(np.linspace(1.0, 2.0, 101))
    data = observed([0.002] * 50 + answers, [True] * 50 + [False] * 101)
    assert quantile(data, 0.5).value == pytest.approx(1.5, abs=0.01)


def test_a_difference_with_a_bound_has_one_end():
    good = np.random.default_rng(4).uniform(0.1, 1.0, 60)
    bad = observed(np.where(good > 0.7, 5.0, good), good > 0.7)
    worse = stats.quantile_difference(good, bad, 0.9)
    assert worse.low > 0
    assert worse.high is None
    better = stats.quantile_difference(bad, good, 0.9)
    assert better.high < 0
    assert better.low is None
