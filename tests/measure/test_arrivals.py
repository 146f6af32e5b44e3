"""When a load sends: shapes, traces, and the command line's short forms."""

from __future__ import annotations

import random
import statistics
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtbuild.errors import MeasureError
from trtbuild.measure.load.flags import parse_shape, parse_traffic
from trtbuild.measure.load.prompts import read_prompts
from trtbuild.measure.load.shapes import arrival_times, user_starts
from trtbuild.measure.load.spec import Bursts, Closed, Constant, LoadSpec, Poisson, Ramp, Replay, TextTraffic
from trtbuild.measure.load.trace import read_trace


def times(shape, duration_s=1000.0, seed=7):
    return list(arrival_times(shape, duration_s=duration_s, rng=random.Random(seed)))


def test_poisson_arrivals_have_the_rate_and_independent_gaps():
    found = times(Poisson(rate_per_s=5))
    gaps = [b - a for a, b in pairwise(found)]
    assert len(found) == pytest.approx(5000, rel=0.05)
    assert statistics.stdev(gaps) == pytest.approx(1 / 5, rel=0.05)  # of an exponential: as its mean


def test_constant_arrivals_do_not_drift():
    assert times(Constant(rate_per_s=3), 2.0) == pytest.approx([0, 1 / 3, 2 / 3, 1, 4 / 3, 5 / 3])
    assert times(Constant(rate_per_s=7))[6999] == pytest.approx(6999 / 7, abs=1e-9)


def test_bursts_come_together():
    assert times(Bursts(requests=3, every_s=10), 20.5) == [0, 0, 0, 10, 10, 10, 20, 20, 20]


def test_a_ramp_from_nothing_sends_a_quarter_in_its_first_half():
    found = times(Ramp(from_per_s=0, to_per_s=10))
    # Λ(T) = 10 · 1000 / 2 = 5000, Λ(T/2) = 1250
    assert len(found) == pytest.approx(5000, rel=0.05)
    assert sum(time_s < 500 for time_s in found) == pytest.approx(1250, rel=0.08)


def test_a_flat_ramp_is_poisson():
    assert len(times(Ramp(from_per_s=4, to_per_s=4))) == pytest.approx(4000, rel=0.05)


def test_users_come_one_after_another():
    assert user_starts(Closed(users=4, ramp_s=8)) == [0, 2, 4, 6]


SHAPES = [Poisson(rate_per_s=9), Bursts(requests=2, every_s=0.3), Ramp(from_per_s=1, to_per_s=30)]


@given(st.sampled_from(SHAPES), st.integers(0, 1000))
def test_times_ascend_within_the_run_and_repeat_with_the_seed(shape, seed):
    found = times(shape, 20.0, seed)
    assert found == sorted(found)
    assert all(0 <= time_s < 20 for time_s in found)
    assert found == times(shape, 20.0, seed)


# Traces


def trace(tmp_path: Path, text: str, name: str = "trace.jsonl") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_trace_begins_at_zero_and_keeps_its_lengths(tmp_path):
    rows = read_trace(
        trace(
            tmp_path, '{"at_s": 5, "input_tokens": 10, "output_tokens": 4}\n\n{"at_s": 7.5, "prompt": "Hi"}\n'
        )
    )
    assert [row.at_s for row in rows] == [0, 2.5]
    assert (rows[0].input_tokens, rows[0].output_tokens, rows[1].prompt) == (10, 4, "Hi")


def test_mooncake_times_are_milliseconds(tmp_path):
    text = (
        '{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [1]}\n'
        '{"timestamp": 27482, "input_length": 7322, "output_length": 490}\n'
    )
    rows = read_trace(trace(tmp_path, text))
    assert rows[1].at_s == pytest.approx(27.482)
    assert rows[0].input_tokens == 6758


def test_azure_traces_are_csv_with_seven_decimals(tmp_path):
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600,110,27\n"
    )
    rows = read_trace(trace(tmp_path, text, "azure.csv"))
    assert rows[1].at_s == pytest.approx(0.052, abs=1e-5)
    assert (rows[1].input_tokens, rows[1].output_tokens) == (110, 27)


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_a_string_may_hold_what_unicode_calls_a_line_end(tmp_path, ends):
    path = tmp_path / "trace.jsonl"
    lines = ['{"at_s": 0, "prompt": "a\u2028b\x85c"}', '{"at_s": 1, "prompt": "d"}']
    path.write_bytes(("\ufeff" + ends.join(lines) + ends).encode())
    assert [row.prompt for row in read_trace(path)] == ["a\u2028b\x85c", "d"]
    assert [prompt.text for prompt in read_prompts(path)] == ["a\u2028b\x85c", "d"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[" * 100_000, "is not JSON"),
        ('{"prompt": "a\\ud800b"}', "half of a surrogate pair"),
        ('{"messages": [{"role": "user", "content": "\\udc00"}]}', "half of a surrogate pair"),
        ('{"prompt": "Hi", "max_tokens": true}', "max_tokens is True"),
        ('{"prompt": "Hi", "max_tokens": 99999999999999999999}', "from 1 to 10,000,000"),
    ],
)
def test_a_bad_line_of_prompts_is_named(tmp_path, line, said):
    path = trace(tmp_path, f'{{"prompt": "fine", "max_tokens": null}}\n{line}\n', "prompts.jsonl")
    with pytest.raises(MeasureError, match=f":2.*{said}"):
        read_prompts(path)


def test_iso_times_in_every_form(tmp_path):
    texts = ("2024-03-31T01:59:59Z", "2024-03-31T03:00:00.5000001+01:00", "2024-03-31 02:00:01.25+0000")
    text = "\n".join(f'{{"timestamp": "{one}"}}' for one in texts)
    assert [row.at_s for row in read_trace(trace(tmp_path, text))] == [0, 1.5, 2.25]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no request"),
        ('{"at_s": 2}\n{"at_s": 1}\n', ":2 is 1 s earlier"),
        ('{"at_s": 2}\nnot json\n', ":2 is not JSON"),
        ('{"input_tokens": 2}\n', ":1 has no time"),
        ('{"at_s": "soon"}\n', "at_s is 'soon'"),
        ('{"at_s": 1, "input_tokens": 0}\n', "input_tokens is 0"),
        ('{"timestamp": "yesterday"}\n', "'yesterday' is no time"),
        ("[1]\n", "no JSON object"),
        ('{"at_s": -5}\n', ":1: at_s is -5"),
        ('{"timestamp": -5}\n', ":1: timestamp is -5"),
        ('{"at_s": 0}\n{"at_s": 1e12}\n', ":2 is 1e.12 s after the first line, more than a year"),
        ('{"timestamp": "2024-01-01T10:00:00.5Q"}\n', "is no time"),
        ("[" * 100_000, ":1 is not JSON"),
        (f'{{"at_s": 1{"0" * 400}}}\n', ":1: at_s is 1000"),
        ('{"at_s": 0, "input_tokens": 1e12}\n', ":1: input_tokens is 1,000,000,000,000, and no model takes"),
        ('{"at_s": 0, "prompt": "a\\ud800"}\n', ":1 holds half of a surrogate pair"),
    ],
)
def test_a_bad_trace_is_refused_with_its_line(tmp_path, text, said):
    with pytest.raises(MeasureError, match=said):
        read_trace(trace(tmp_path, text))


# Short forms


def test_short_forms_of_shapes():
    assert parse_shape("closed:8") == Closed(users=8)
    assert parse_shape("bursts:16@10") == Bursts(requests=16, every_s=10)
    assert parse_shape("ramp:1-10") == Ramp(from_per_s=1, to_per_s=10)
    assert parse_shape("trace:a.jsonl@2") == Replay(path=Path("a.jsonl"), speed=2)


@pytest.mark.parametrize(
    "text",
    ["closed", "closed:none", "poisson:0", "tide:3", "trace:", "closed:0", "bursts:2@inf", "ramp:nan-3"],
)
def test_a_shape_that_is_none_is_refused_with_the_forms(text):
    with pytest.raises(MeasureError) as caught:
        parse_shape(text)
    assert "--shape closed:USERS" in caught.value.remedies


def test_short_forms_of_traffic():
    half = parse_traffic("512/64:offline=0.5", prefix_share=0.25)
    assert half == TextTraffic(
        name="512/64", weight=0.5, input_tokens=512, output_tokens=64, prefix_share=0.25, interactive=False
    )
    assert parse_traffic("prompts.jsonl@32").output_tokens == 32
    assert parse_traffic("vision:page.png").picture == Path("page.png")
    with pytest.raises(MeasureError, match="is no traffic"):
        parse_traffic("enormous")


def test_a_warmup_that_leaves_nothing_is_refused():
    flow = {"model": "m", "shape": {"kind": "closed", "users": 1}, "traffic": [parse_traffic("8/8")]}
    with pytest.raises(ValueError, match="leaves nothing"):
        LoadSpec(flows=[flow], duration_s=5, warmup_s=5)
