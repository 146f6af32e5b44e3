"""A deployment file: what is read as what, and what each mistake is answered with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trtbuild.errors import SpecError
from trtbuild.spec import DeploymentSpec, Target
from trtbuild.specfile import load_spec, validate_spec


@pytest.fixture
def write(tmp_path: Path):
    def _write(text: str | bytes, name: str = "deployment.yaml") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return _write


def _message(path: Path) -> str:
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    return "\n".join((caught.value.message, *caught.value.remedies))


def test_reads_every_key(write, tmp_path):
    spec = load_spec(
        write(
            "target: engine\ngpu: l4\ncontainer: 25.10\n"
            "models:\n  - {model: qwen-7b, name: chat, quant: awq, kv_dtype: fp8, tp: 2, instances: 3,\n"
            "     max_input_tokens: 1500, max_output_tokens: 300, concurrency: 32, max_batch_size: 48,\n"
            "     kv_tokens: 65536,\n"
            "     calibrate: true, calibration: own.jsonl, calibration_field: say, calibration_samples: 64,\n"
            "     calibration_tokens: 256, on_cpu: true, revision: v1.0, loras: {french: fr}, guided: true,\n"
            "     max_num_tokens: 1024, ttft_ms: 800, usual_input_tokens: 400, usual_output_tokens: 100,\n"
            "     chunked_context: false, kv_reuse: false}\n"
            "vision:\n  - {name: reader, pipeline: ocr, instances: 2, max_batch_size: 4}\n"
        )
    )
    assert spec.target is Target.ENGINE
    assert spec.container == "25.10"  # YAML's own rules would make it the number 25.1
    assert spec.models[0].model_dump(exclude={"weights", "model"}) == {
        "name": "chat", "quant": "awq", "kv_dtype": "fp8", "tp": 2, "instances": 3,
        "max_input_tokens": 1500, "max_output_tokens": 300, "concurrency": 32, "max_batch_size": 48,
        "kv_tokens": 65536, "calibrate": True, "calibration": tmp_path / "own.jsonl",
        "calibration_field": "say", "calibration_samples": 64, "calibration_tokens": 256, "on_cpu": True,
        "revision": "v1.0", "loras": {"french": tmp_path / "fr"}, "guided": True, "measured": None,
        "max_num_tokens": 1024, "ttft_ms": 800.0, "usual_input_tokens": 400,
        "usual_output_tokens": 100, "chunked_context": False, "kv_reuse": False,
    }  # fmt: skip
    assert (spec.vision[0].name, spec.vision[0].instances, spec.vision[0].max_batch_size) == ("reader", 2, 4)


@pytest.mark.parametrize("word", ["no", "on", "2024-01-01", "0x10", "1:30", "1e3", "25.10"])
def test_words_that_yaml_would_turn_into_something_else_stay_words(write, word):
    assert load_spec(write(f"models: [{{model: {word}}}]")).models[0].model == word


def test_json_and_yaml_mean_the_same(write):
    data = {"gpu": "l4", "models": [{"model": "qwen-7b", "quant": "awq", "tp": 2}]}
    assert load_spec(write(json.dumps(data, indent="\t"), "a.json")) == load_spec(write(yaml.safe_dump(data)))


def test_paths_are_relative_to_the_file(write, tmp_path):
    (tmp_path / "mine" / "model").mkdir(parents=True)
    path = write(
        "models:\n- {model: mine/model, weights: w.gguf}\n- {model: ./x}\n- {model: Qwen/Qwen2.5-7B}\n"
    )
    first, second, third = load_spec(path).models
    assert (first.model, first.weights) == (str(tmp_path / "mine/model"), tmp_path / "w.gguf")
    assert Path(second.model) == tmp_path / "x"
    assert third.model == "Qwen/Qwen2.5-7B"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("models: [{model: a, quantt: awq}]", ["`models[0].quantt`", "did you mean `quant`?"]),
        ("models: [{model: a, max_input: 9}]", ["`models[0].max_input`", "did you mean `max_input_tokens`?"]),
        ("models: [{model: a, tensor_parallel_size: 2}]", ["here it is `tp`"]),
        ("models: [{model: a}]\nvison: []", ["unknown key `vison`", "did you mean `vision`?"]),
        ("models: [{model: a}]\nquant: awq", ["unknown key `quant`", "belongs to an entry of `models`"]),
        ("models: [{model: a, zzz: 1}]", ["the keys here are model, name,"]),
        ("models: [{model: a, tp: two}]", ["`models[0].tp`", "whole number", "'two'"]),
        ("models: [{model: a, tp: 1.5}]", ["`models[0].tp`", "'1.5'"]),
        ("models: [{model: a, tp: true}]", ["`models[0].tp`", "truth value"]),
        ("models: [{model: a, tp: 0}]", ["`models[0].tp`", "greater than or equal to 1", "the number 0"]),
        (
            "vision: [{pipeline: ocr, preprocess: {mean: [nan]}}]",
            ["`vision[0].preprocess.mean[0]`", "finite"],
        ),
        ("vision: [{pipeline: ocr, preprocess: {std: [inf]}}]", ["`vision[0].preprocess.std[0]`", "finite"]),
        ("models: [{model: a, name: 12}]", ["`models[0].name`", "expected text", 'quote it: "12"']),
        ("models: [{quant: awq}]", ["`models[0].model` is missing"]),
        ("models: [{model: ''}]", ["`models[0].model` is empty"]),
        ('models: [{model: "\\uDCFF"}]', ["`models[0].model` holds U+DCFF", "no valid Unicode"]),
        ('models: [{model: a, name: "\\ud800"}]', ["`models[0].name` holds U+D800"]),
        ('models: [{model: "a\\0b"}]', ["`models[0].model` holds U+0000"]),
        ('"a\\ud800": 1', ["holds U+D800"]),
        ("models: [qwen-7b]", ["`models[0]`", "write `- model: qwen-7b`"]),
        ("models: qwen-7b", ["`models`: expected a list"]),
        ("target: gpu\nmodels: [{model: a}]", ["`target`", "'engine', 'llmapi' or 'local'"]),
        ("- model: a", ["mapping", "not a list"]),
        ("", ["not nothing", "write at least"]),
        ("gpu: l4", ["names no model"]),
        ("models:\n- model: a\n  model: b", ["line 3", "'model' is there twice"]),
        ('{"models": [], "models": []}', ["'models' is there twice"]),
        ('{"models": [}', ["line 1, column 13"]),
        ("models: [", ["line 1"]),
        ("a: b: c", ["line 1, column 5"]),
        ("a: 1\n---\nb: 2", ["another document"]),
        ("1: 2", ["the number 1 cannot be a key"]),
        ("models: [!!python/object/apply:os.getcwd []]", ["python/object/apply"]),
        ("[" * 5000, ["nested too deeply"]),
        ("a: &a {b: *a}", ["aliases"]),
        (b"models: [{model: \xff}]", ["not UTF-8"]),
        ("models: [{model: a, name: x}, {model: b, name: x}]", ["two entries are called 'x'"]),
        ("models: [{model: a, name: ocr}]\nvision: [{}]", ["two entries are called 'ocr'"]),
    ],
)
def test_each_mistake_is_named_by_its_place_with_what_would_work(write, text, parts):
    message = _message(write(text))
    assert message.startswith(str(write(text)))
    for part in parts:
        assert part in message


def test_all_mistakes_are_told_at_once(write):
    message = _message(write("models: [{model: a, tp: x, quantt: y}]\ntarget: z"))
    assert message.count("\n  - ") == 3


def test_aliases_that_explode_are_refused_quickly(write):
    levels = ["l0: &l0 [x,x,x,x,x,x,x,x,x,x]"]
    levels += [f"l{n}: &l{n} [{','.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "aliases" in _message(write("\n".join(levels)))


def test_anchors_and_merges_work(write):
    first, second = load_spec(write("models:\n- &one {model: a, tp: 2}\n- {<<: *one, name: b}")).models
    assert (first.name, second.name, second.tp) == (None, "b", 2)


@pytest.mark.parametrize(
    "name", ["../up", "a/b", ".hidden", "a b", "a..b", "-x", "", "a:b", "a\n", "é", "x" * 129]
)
def test_names_that_could_leave_the_repository_are_refused(name):
    with pytest.raises(SpecError, match="cannot be a model name"):
        validate_spec({"models": [{"model": "a", "name": name}]}, where="here")


@pytest.mark.parametrize("missing", ["nothing.yaml", "."])
def test_a_file_that_cannot_be_read(tmp_path, missing):
    assert "cannot be read" in _message(tmp_path / missing)


def test_a_file_that_is_too_long(write):
    assert "too long" in _message(write("#" * (1 << 20) + "\n"))


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["model", "qwen-7b"]),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(
            st.sampled_from(["models", "vision", "model", "name", "tp", "quant", "x"]), children
        )
    ),
    max_leaves=12,
)


@given(_VALUES)
def test_any_data_gives_a_spec_or_a_spec_error(data):
    try:
        assert isinstance(validate_spec(data, where="here"), DeploymentSpec)
    except SpecError as error:
        assert error.message.startswith("here: ")  # noqa: PT017 - both ends are right


@given(st.text(max_size=40))
def test_any_text_gives_a_spec_or_a_spec_error(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("spec") / "s.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError):
        load_spec(path)


def test_fewer_slots_than_requests_at_once_are_refused(write):
    with pytest.raises(SpecError, match="max_batch_size 8 is less than concurrency 16"):
        load_spec(write("models:\n  - {model: qwen-7b, concurrency: 16, max_batch_size: 8}\n"))
