"""Quality: scores by hand; an undamaged model passes, damaged ones are caught."""

from __future__ import annotations

import hashlib
import json
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritonstream.testing import FakeModel, FakeTriton
from trtbuild.cli import run
from trtbuild.errors import MeasureError
from trtbuild.measure.load.prompts import Prompt, Sizing
from trtbuild.measure.quality import scores
from trtbuild.measure.quality.answers import Answer
from trtbuild.measure.quality.judge import GATE, check_gate, judge
from trtbuild.measure.quality.questions import Question, needles, read_questions
from trtbuild.measure.stats import share

WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "and",
    "then",
    "it",
    "went",
    "home",
    "to",
    "eat",
    "some",
    "fish",
    "with",
    "rice",
    "while",
    "rain",
    "fell",
]


def test_scores_by_hand():
    assert scores.normalised("Héllo,  World!") == scores.normalised("héllo world")
    assert scores.first_divergence([1, 2, 3], [1, 2, 4]) == 2
    assert scores.first_divergence([1, 2], [1, 2, 3]) == 2
    assert scores.first_divergence([1], [1]) is None
    assert scores.agreement([1, 2, 3, 4], [1, 9, 3]) == 0.5
    before, after = (
        Answer(ids=(1, 2, 3), logprobs=(-0.1, -0.2, -3)),
        Answer(ids=(1, 2, 9), logprobs=(-0.2, -0.4, -1)),
    )
    assert scores.divergence(before, after) == pytest.approx((0.1 + 0.2) / 2)
    assert scores.divergence(Answer(ids=(1,)), Answer(ids=(1,))) is None


def test_json_numbers_and_code():
    schema = {"type": "object", "required": ["total"], "properties": {"total": {"type": "number"}}}
    assert scores.is_json('Here:\n```json\n{"total": 3}\n```', schema)
    assert not scores.is_json('{"total": "3"}', schema)
    assert not scores.is_json('{"total": 3', True)
    assert scores.comes_to("6 times 7 is 42.", 42)
    assert scores.comes_to("so 1,234.5", 1234.5)
    assert not scores.comes_to("42 or 43", 42)
    assert scores.parses("```python\ndef f():\n    return 1\n```", "python")
    assert not scores.parses("def f(:", "python")


@given(st.integers(1, 8), st.integers(30, 80))
def test_loops_are_seen_whatever_their_period(period, count):
    rng = random.Random(period * 1000 + count)
    phrase = rng.sample(WORDS, period)
    assert scores.is_gibberish(Answer(text=" ".join(phrase[at % period] for at in range(count))))


def test_ordinary_text_is_no_gibberish_in_any_script():
    for text in (
        "An inference server runs a model for many clients, and shares one GPU among them.",
        " ".join(WORDS),
        "推論サーバーは多くのクライアントのためにモデルを実行します。",
        "1. one\n2. two\n3. three", "😀 fine 👍", "",
    ):  # fmt: skip
        assert not scores.is_gibberish(Answer(text=text)), text
    assert scores.is_gibberish(Answer(text="\ufffd\ufffd\ufffdab\ufffd\ufffd cd\ufffd"))


def test_needles_lie_at_their_depths():
    found = list(needles(1000, Sizing(), first=5))
    assert len(found) == 10
    for question, depth in zip(found[:5], (0.0, 0.25, 0.5, 0.75, 1.0), strict=True):
        text = question.prompt.text
        at = text.index(question.needle) / len(text)
        assert at == pytest.approx(depth, abs=0.12)
        assert 400 <= len(text.split()) <= 520
    assert 880 <= len(found[-1].prompt.text.split()) <= 960
    assert len({question.needle for question in found}) == 10


def test_expectations_are_read_from_the_file(tmp_path):
    path = tmp_path / "q.jsonl"
    rows = [
        {"prompt": "a", "answer": 3},
        {"prompt": "b", "schema": True},
        {"prompt": "c", "group": "mine"},
        "plain",
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    found = read_questions(path, max_tokens=9)
    assert [question.group for question in found] == ["numeric", "json", "mine", "requests"]
    assert len(read_questions(path, max_tokens=9, limit=2)) == 2
    path.write_text('{"prompt": "a", "answer": "three"}')
    with pytest.raises(MeasureError, match="not a number"):
        read_questions(path, max_tokens=9)


def test_a_gate_that_is_none_is_refused():
    assert check_gate({"json": 0.2})["json"] == 0.2
    for wrong in ({"speed": 0.1}, {"json": 3}):
        with pytest.raises(MeasureError):
            check_gate(wrong)


# Whole comparisons, on a fake that continues a prompt as a language model does: the next word follows from
# the last three, so that what is forced and what is free agree.


def continued(text: str, count: int, damage: float = 0.0, loop: bool = False) -> list[str]:
    words, made = text.split(), []
    for _ in range(count):
        key = " ".join(words[-3:])
        number = int(hashlib.sha256(key.encode()).hexdigest()[:8], 16)
        if damage and (number % 1000) / 1000 < damage:
            number += 7
        word = "the" if loop else WORDS[number % len(WORDS)]
        words.append(word)
        made.append(f" {word}")
    return made


def model(**kind):
    def reply(inputs):
        text = inputs["text_input"]
        if "special number" in text and not kind.get("shift"):
            return [" " + text.split("garden is ")[1].split(".")[0], "."]
        return continued(text, 40, **{key: value for key, value in kind.items() if key != "shift"})

    return FakeModel(reply=reply)


@pytest.fixture(scope="module")
def servers():
    models = {
        "base": model(), "same": model(), "rounded": model(damage=0.06), "shifted": model(damage=1.0),
        "looping": model(loop=True), "forgetful": model(shift=True),
    }  # fmt: skip
    with FakeTriton(models) as fake:
        yield fake


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("TRTBUILD_RUNS", str(tmp_path / "runs.sqlite"))


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    rng = random.Random(4)
    path.write_text("\n".join(json.dumps({"prompt": " ".join(rng.sample(WORDS, 9))}) for _ in range(40)))
    return path


def compare(servers, prompts, candidate, *args):
    fixed = (
        "--prompts",
        str(prompts),
        "--model",
        "base",
        "--candidate-model",
        candidate,
        "--max-tokens",
        "32",
    )
    return run(("quality", servers.url, servers.url, *fixed, *args))


def test_the_same_model_passes(servers, prompts, tmp_path, capsys):
    page = tmp_path / "quality.html"
    assert compare(servers, prompts, "same", "-o", str(page), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["passed"]
    assert found["groups"]["requests"]["exact"]["value"] == 1
    assert found["groups"]["next token"]["agreement"]["value"] == 1
    assert "Every answer is the same" in page.read_text()


def test_a_model_that_rounds_a_little_passes_though_its_answers_part(servers, prompts, capsys):
    assert compare(servers, prompts, "rounded", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["groups"]["requests"]["exact"]["value"] < 0.6
    assert found["groups"]["next token"]["agreement"]["value"] > 0.85


@pytest.mark.parametrize(
    ("candidate", "broken"),
    [("shifted", "next-token"), ("looping", "gibberish"), ("forgetful", "needle")],
)
def test_damaged_models_are_caught(servers, prompts, tmp_path, capsys, candidate, broken):
    page = tmp_path / "quality.html"
    assert compare(servers, prompts, candidate, "-o", str(page)) == 1
    shown = capsys.readouterr().out
    assert "NOT passed" in shown
    line = next(line for line in shown.splitlines() if line.strip().startswith(broken))
    assert "NOT KEPT" in line
    text = page.read_text()
    assert "The gate is NOT passed" in text
    assert "candidate</h3>" in text


def test_a_model_that_says_nothing_is_no_baseline(prompts, capsys):
    with FakeTriton({"base": FakeModel(reply=[""]), "same": FakeModel(reply=[""])}) as silent:
        assert compare(silent, prompts, "same") == 1
    said = capsys.readouterr().err
    assert "with nothing" in said
    assert '{"messages": ' in said


def test_empty_answers_that_are_the_same_agree():
    """Of chat requests no single step is asked: the first token of the answers is one."""
    asked = [
        Question(number, "requests", Prompt(messages=[{"role": "user", "content": "?"}]), 8)
        for number in range(9)
    ]
    answers = [Answer(""), *[Answer("yes", (5,))] * 8]
    found = judge(asked, answers, answers, check_gate({}))
    assert found.passed
    assert found.gate[0].figure.value == 1


def test_none_or_all_of_many_is_an_end_of_the_interval():
    assert share(0, 6).low == 0
    assert share(6, 6).high == 1


def test_what_cannot_be_compared_is_an_error(servers, prompts, tmp_path, capsys):
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    assert compare(servers, empty, "same") == 1
    assert "holds no prompt" in capsys.readouterr().err
    assert compare(servers, prompts, "nobody") == 1
    assert "unknown model" in capsys.readouterr().err
    assert compare(servers, prompts, "same", "--gate", "json") == 2
    assert run(("quality", "127.0.0.1:1", servers.url, "--prompts", str(prompts))) == 1
    assert "no server answers at 127.0.0.1:1" in capsys.readouterr().err
    assert run(("quality", "repo_that_is_not", servers.url, "--prompts", str(prompts))) == 1
    assert "repo_that_is_not is neither a folder nor HOST:PORT" in capsys.readouterr().err


@pytest.mark.parametrize(
    "schema",
    [
        5,
        "object",
        {"type": "nonsense"},
        {"$ref": "https://schemas.test/total.json"},  # nothing is fetched
        {"properties": {"total": {"$ref": "#/$defs/number"}}},
    ],
)
def test_a_schema_that_is_none_is_refused_before_anything_is_asked(tmp_path, schema):
    path = tmp_path / "q.jsonl"
    path.write_text('"fine"\n' + json.dumps({"prompt": "p", "schema": schema}))
    with pytest.raises(MeasureError, match=r"`schema` of request 2 (is|refers)"):
        read_questions(path, max_tokens=4)


def test_code_in_a_language_that_is_not_parsed_is_refused(tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps({"prompt": "p", "language": "cobol"}))
    with pytest.raises(MeasureError, match="'cobol': json and python"):
        read_questions(path, max_tokens=4)


def test_paired_intervals_shrink_with_what_does_not_change(tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_text("\n".join(json.dumps({"prompt": f"p{n}", "answer": 7}) for n in range(100)))
    questions = read_questions(path, max_tokens=4)
    right, wrong = Answer(text="7"), Answer(text="8")
    after = [wrong] * 10 + [right] * 90
    verdict = judge(questions, [right] * 100, after, {**GATE, "numeric": 0.05})
    numeric = next(one for one in verdict.gate if one.name == "numeric")
    assert not numeric.kept
    assert numeric.figure.value == pytest.approx(0.1)
    # Wald, paired: 1.96 · sqrt((0.1 − 0.01) / 100) = 0.0588
    assert numeric.figure.high == pytest.approx(0.1588, abs=1e-3)
    assert math.isclose(verdict.each["numeric"][1].value, 0.9)


def test_comparisons_are_kept_and_shown(servers, prompts, tmp_path, capsys):
    assert compare(servers, prompts, "same", "--label", "good") == 0
    assert compare(servers, prompts, "shifted", "--label", "bad") == 1
    capsys.readouterr()
    assert run(("runs",)) == 0
    shown = capsys.readouterr().out
    assert "quality" in shown
    assert "NOT passed" in " ".join(shown.split())
    assert run(("runs", "bad")) == 0
    again = capsys.readouterr().out
    assert "next-token" in again
    assert "NOT KEPT" in again
    assert run(("runs", "bad", "--json")) == 0
    kept = json.loads(capsys.readouterr().out)
    assert kept["kind"] == "quality"
    assert kept["metrics"]["quality"]["passed"] is False
    assert kept["load"]["questions"] == 40
    page = tmp_path / "report.html"
    assert run(("report", "bad", "-o", str(page))) == 0
    assert "The worst of" in page.read_text()
    assert run(("report", "good", "bad", "-o", str(page))) == 1
    capsys.readouterr()
    assert run(("compare", "good", "bad")) == 0
    rows = capsys.readouterr().out
    assert any("agreement" in line and "worse" in line for line in rows.splitlines())
    assert run(("diagnose", "bad")) == 1
    assert "nothing in it was timed" in capsys.readouterr().err


def test_a_comparison_and_a_timed_run_are_not_comparable(servers, prompts, capsys):
    assert compare(servers, prompts, "same", "--label", "answers") == 0
    load = ("--duration", "0.5", "--warmup", "0", "--traffic", "5/2", "--label", "timed")
    assert run(("bench", "--url", servers.url, "--model", "base", *load)) == 0
    capsys.readouterr()
    assert run(("compare", "answers", "timed")) == 1
    assert "is a quality run" in capsys.readouterr().err
