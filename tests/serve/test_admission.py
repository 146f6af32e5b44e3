from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.engine_jobs import job, limits

from trtbuild.serve.local.tensorrtllm.admission import Admission
from trtbuild.serve.local.tensorrtllm.jobs import RequestRefused


def test_enters_when_all_it_can_ever_need_is_free() -> None:
    # a pool of 4 blocks of 32 tokens; 40 + 24 = 64 tokens = 2 blocks each
    admission = Admission(limits(pool_blocks=4))
    for key in range(3):
        admission.offer(job(key, 40, 24))
    assert [entered.key for entered in admission.admit()] == [0, 1]
    assert admission.waiting == 1
    admission.release(0)
    assert [entered.key for entered in admission.admit()] == [2]


def test_the_first_that_does_not_fit_holds_back_those_behind_it() -> None:
    admission = Admission(limits(pool_blocks=4))
    admission.offer(job(0, 64, 32))  # 3 blocks
    admission.offer(job(1, 64, 32))
    admission.offer(job(2, 10, 10))  # 1 block would fit
    assert [entered.key for entered in admission.admit()] == [0]


def test_no_more_sequences_than_the_engine_batches() -> None:
    admission = Admission(limits(max_sequences=3))
    admission.offer(job(0, beam_width=2))
    admission.offer(job(1))
    admission.offer(job(2))
    assert [entered.key for entered in admission.admit()] == [0, 1]


def test_a_seed_of_its_own_runs_beside_no_other_draw() -> None:
    admission = Admission(limits())
    admission.offer(job(0, greedy=False))
    admission.offer(job(1))  # greedy: draws nothing
    admission.offer(job(2, greedy=False, seed=7))
    admission.offer(job(3, greedy=False))
    assert [entered.key for entered in admission.admit()] == [0, 1]
    admission.release(0)
    assert [entered.key for entered in admission.admit()] == [2]
    admission.release(2)
    assert [entered.key for entered in admission.admit()] == [3]


def test_a_full_queue_refuses_in_the_executors_words() -> None:
    admission = Admission(limits(pool_blocks=1, max_queue_size=1))
    admission.offer(job(0))
    list(admission.admit())
    admission.offer(job(1))
    with pytest.raises(RequestRefused, match="Maximum queue size of 1 has been reached, please try again"):
        admission.offer(job(2))


def test_who_waits_can_leave() -> None:
    admission = Admission(limits(pool_blocks=1))
    admission.offer(job(0))
    admission.offer(job(1))
    list(admission.admit())
    assert admission.withdraw(1) is not None
    assert admission.withdraw(0) is None  # it is in the engine
    assert admission.waiting == 0


_sizes = st.lists(st.tuples(st.integers(1, 200), st.integers(1, 100), st.integers(1, 4)), max_size=40)


@given(sizes=_sizes, ends=st.randoms(use_true_random=False))
def test_never_more_than_the_pool_and_everybody_gets_in(
    sizes: list[tuple[int, int, int]], ends: random.Random
) -> None:
    bounds = limits(pool_blocks=80, max_sequences=6)
    admission = Admission(bounds)
    inside: dict[int, tuple[int, int]] = {}
    order: list[int] = []
    jobs = [job(key, prompt, new, beam_width=beams) for key, (prompt, new, beams) in enumerate(sizes)]
    for one in jobs:
        bounds.check_fits(one)
        admission.offer(one)
    while len(order) < len(jobs):
        for entered in admission.admit():
            inside[entered.key] = (bounds.blocks(entered), entered.sampling.beam_width)
            order.append(entered.key)
        assert sum(blocks for blocks, _ in inside.values()) <= 80
        assert sum(beams for _, beams in inside.values()) <= 6
        if inside:
            gone = ends.choice(sorted(inside))
            admission.release(gone)
            del inside[gone]
    assert order == sorted(order)  # first in, first out
