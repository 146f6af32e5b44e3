"""Files that are broken in every way: one finding each, with a place, and never a traceback."""

from __future__ import annotations

import os
import stat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.lint_repo import PYTHON_MODEL, found, line_of, nvidia, only, write

from trtbuild.lint.pbtxt import Kind, PbtxtError, parse, whole_number
from trtbuild.lint.run import lint

GOOD = 'name: "m"\nbackend: "python"\nmax_batch_size: 8\n'


@pytest.mark.parametrize(
    ("text", "line", "column", "part"),
    [
        ('backend: "python\nmax_batch_size: 8\n', 1, 10, "does not end on this line"),
        ("backend: 'python\n", 1, 10, "does not end on this line"),
        ('backend: "python"\ninstance_group [\n  { count: 1 kind: KIND_CPU }\n', 4, 1, "(in instance_group)"),
        ('backend: "python"\ninput [ { name: } ]\n', 2, 17, "(in input.name)"),
        ('backend: "python"\nmax_batch_size 8\n', 2, 16, "after 'max_batch_size'"),
        ('backend: "python"\n}\n', 2, 1, "a field's name is expected"),
        ("{}\n", 1, 1, "a field's name is expected"),
        ('\tbackend:\t"python"\n\t\t@\n', 2, 3, "found '@'"),
        ("a { " * 200, 1, 405, "nested deeper"),
    ],
)
def test_text_that_does_not_parse_is_one_finding_with_line_column_and_key(tmp_path, text, line, column, part):
    write(tmp_path, "m", text, {"1/model.py": PYTHON_MODEL})
    finding = only(tmp_path)
    assert (finding.rule, finding.place.file) == ("syntax", "m/config.pbtxt")
    assert (finding.place.line, finding.place.column) == (line, column)
    assert part in finding.found


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + GOOD,
        GOOD.replace("\n", "\r\n"),
        GOOD.replace(" ", "\t"),
        GOOD + '# an "open quote\n',
        GOOD + "# ${not_a_placeholder}\n",
        GOOD + 'parameters { key: "a" value { string_value: "one " "two # three" } }  # ok',
        GOOD + "\n" * 100_000,
    ],
)
def test_text_that_looks_strange_and_is_right(tmp_path, text):
    write(tmp_path, "m", text, {"1/model.py": PYTHON_MODEL})
    assert found(tmp_path) == []


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (b"\x7fELF\x00\x00\x01", 0),
        (b'name: "m"\nbackend: "pyth\xf6n"\n', 2),
        (b"# " + b"x" * (10 << 20), 0),
    ],
)
def test_what_is_no_text_is_one_finding(tmp_path, raw, line):
    write(tmp_path, "m", raw, {"1/model.py": PYTHON_MODEL})
    finding = only(tmp_path)
    assert (finding.rule, finding.place.line) == ("unreadable", line)


@pytest.mark.parametrize(
    ("raw", "name", "remedy"),
    [
        (GOOD.encode("utf-16"), "text in UTF-16,", "iconv -f UTF-16 -t UTF-8 m/config.pbtxt"),
        (GOOD.encode("utf-32"), "text in UTF-32,", "iconv -f UTF-32 "),
        (GOOD.encode("utf-16-le"), "text in UTF-16LE", "iconv -f UTF-16LE "),
        (GOOD.encode("utf-16-be"), "text in UTF-16BE", "iconv -f UTF-16BE "),
        (b"\x7fELF\x02\x01", "a program or a library", "as text"),
        (b"\x1f\x8b\x08\x00", "a gzip archive", "as text"),
        (b"PK\x03\x04", "a zip archive", "as text"),
        (b"\x08\x07\x12\x0b\x00\x00pytorch\x00", "a binary file", "as text"),
    ],
)
def test_a_file_that_is_no_text_is_named(tmp_path, raw, name, remedy):
    write(tmp_path, "m", raw, {"1/model.py": PYTHON_MODEL})
    finding = only(tmp_path)
    assert finding.rule == "unreadable"
    assert name in finding.found
    assert remedy in finding.remedy


@pytest.mark.parametrize(
    "text",
    [
        "x" * 5000,
        "@" + "y" * 5000,
        'backend: "python"\n' + "a" * 3000 + ": 1",
        'backend: "python"\n' + "a { b { " * 40 + "@",
        'backend: "python"\nparameters { key: "k" value { ' + "z" * 4000 + ": 1 } }",
    ],
)
def test_long_words_and_key_paths_are_cut(tmp_path, text):
    write(tmp_path, "m", text, {"1/model.py": PYTHON_MODEL})
    for finding in lint(tmp_path):
        for part in (finding.found, finding.why, finding.remedy):
            assert max(map(len, part.split())) <= 400
        assert max(map(len, finding.found.split())) <= 120


def test_loops_of_links_and_folders_under_a_files_name(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    write(
        tmp_path,
        "round",
        GOOD.replace("m", "round", 1).replace('name: "round"', 'name: "round"'),
        {"1/model.py": PYTHON_MODEL},
    )
    (tmp_path / "round" / "config.pbtxt").write_text('name: "round"\nbackend: "python"\n')
    (tmp_path / "round" / "1" / "again").symlink_to(tmp_path)
    (tmp_path / "selflink" / "1").mkdir(parents=True)
    (tmp_path / "selflink" / "config.pbtxt").symlink_to("config.pbtxt")
    (tmp_path / "folder" / "config.pbtxt").mkdir(parents=True)
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "config.pbtxt")  # reading it would never end
    write(tmp_path, "lost", 'backend: "python"\n', {"1/model.py": PYTHON_MODEL})
    (tmp_path / "lost" / "2").symlink_to("gone")
    assert [(rule, file) for rule, file, _ in found(tmp_path)] == [
        ("unreadable", "folder/config.pbtxt"),
        ("unreadable", "loop"),
        ("no-version", "lost/2"),
        ("unreadable", "pipe/config.pbtxt"),
        ("unreadable", "selflink/config.pbtxt"),
    ]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission(tmp_path):
    path = write(tmp_path, "m", GOOD)
    path.chmod(0)
    assert only(tmp_path).rule == "unreadable"
    path.chmod(stat.S_IRUSR)


def test_a_folder_that_is_no_model_and_a_name_with_a_newline(tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("x")
    write(tmp_path, "two\nlines", 'backend: "python"\n', {"1/model.py": PYTHON_MODEL})
    findings = lint(tmp_path)
    assert [(item.rule, str(item.place)) for item in findings] == [
        ("no-config", "notes"), ("model-name", "two\\nlines"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "rule", "line"),
    [
        ("max_batch_size: 1\nmax_batch_size: 2\n", "duplicate-key", 2),
        ("max_batch_size: 8.5\n", "wrong-type", 1),
        ('max_batch_size: "8"\n', "wrong-type", 1),
        ("max_batch_size: 99999999999\n", "wrong-type", 1),
        ("backend: python\n", "wrong-type", 1),
        ("max_batchsize: 8\n", "unknown-key", 1),
        ('input [ { name: "a" data_type: TYPE_FLOAT dims: [1] } ]\n', "wrong-type", 1),
        ("instance_group [\n { kind: KIND_TPU }\n]\n", "wrong-type", 2),
        ("model_transaction_policy {\n decoupled: yes }\n", "wrong-type", 2),
        ("dynamic_batching { }\nsequence_batching { }\n", "duplicate-key", 2),
        ("max_batch_size: -1\n", "batch-size", 1),
        ("max_batch_size: 4\ndynamic_batching {\n preferred_batch_size: [ 8 ] }\n", "batch-size", 3),
        ("input [ { name: 'a' data_type: TYPE_FP32\n dims: [ 0 ] } ]\n", "tensor-shape", 2),
        ('name: "other"\n', "name-mismatch", 1),
        ("instance_group [ { kind: KIND_CPU\n gpus: [ 0 ] } ]\n", "gpus-ignored", 2),
        (
            "response_cache { enable: true }\nmodel_transaction_policy { decoupled: true }\n",
            "response-cache",
            1,
        ),
    ],
)
def test_a_mistake_is_told_where_it_stands(tmp_path, text, rule, line):
    write(tmp_path, "m", text, {"1/model.py": PYTHON_MODEL})
    assert (rule, "m/config.pbtxt", line) in found(tmp_path)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("max_batch_size: " + "9" * 6000, "wrong-type"),  # Python reads at most 4300 digits
        ("max_batch_size: 0x" + "f" * 6000, "wrong-type"),
        ("max_batch_size: 1e999", "wrong-type"),
        ("instance_group [ { count: " + "9" * 6000 + " } ]", "wrong-type"),
        ("input [ { name: 'a' data_type: 999 dims: [ 1 ] } ]", "wrong-type"),
        ("input [ { name: 'a' data_type: -1 dims: [ 1 ] } ]", "wrong-type"),
        ("{" * 5000, "syntax"),
        ("a { " * 5000, "syntax"),
    ],
)
def test_what_is_far_too_large_is_one_short_finding(tmp_path, text, rule):
    write(tmp_path, "m", f'backend: "python"\n{text}\n', {"1/model.py": PYTHON_MODEL})
    finding = only(tmp_path)
    assert (finding.rule, finding.place.line) == (rule, 2)
    assert len(finding.found) < 700


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("max_tokens_in_paged_kv_cache", "²³", "number-value"),  # digits for str.isdigit, not for int
        ("max_tokens_in_paged_kv_cache", "٣", "number-value"),
        ("gpu_device_ids", "٠", "device-groups"),
        ("max_beam_width", "9" * 6000, None),
        ("kv_cache_free_gpu_mem_fraction", "1e-999", "number-value"),
        ("gpt_model_path", "a/" * 5000 + "1", None),
        ("gpt_model_path", "x\\000y", None),
    ],
)
def test_strange_values_of_an_engine_are_told_or_left(tmp_path, key, value, rule):
    repo = nvidia(tmp_path, "0.19.0", values={key: value})
    assert [found_rule for found_rule, _, _ in found(repo)] == ([rule] if rule else [])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 0),
        ("[" * 100_000, 1),
        ('{"version": 5, "pretrained_config": [1], "build_config": "x"}', 0),
        ('{"version": "0.19.0", "pretrained_config": {"mapping": {"tp_size": 1e400, "pp_size": "2"}}}', 1),
        ('{"build_config": {"plugin_config": null, "max_batch_size": ' + "9" * 5000 + "}}", 1),
    ],
)
def test_an_engines_config_of_any_shape_is_one_finding(tmp_path, text, line):
    repo = nvidia(tmp_path, "0.19.0", values={"gpt_model_path": "tensorrt_llm/1"})
    (repo / "tensorrt_llm" / "1" / "config.json").write_text(text)
    finding = only(repo)
    assert finding.rule == "engine-files"
    assert finding.place.line in (line, line_of(repo / "tensorrt_llm" / "config.pbtxt", "tensorrt_llm/1"))


@pytest.mark.parametrize("text", ["", "[]", '{"interface": 5, "plan": []}', "[" * 100_000, "\x00"])
def test_a_stamp_that_cannot_be_read(tmp_path, text):
    write(tmp_path, "m", 'backend: "python"\n', {"1/model.py": PYTHON_MODEL})
    (tmp_path / "trtbuild.json").write_text(text)
    assert found(tmp_path) == [("stamp", "trtbuild.json", 0)]


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="09.-+exXfFaé²٣,; ", max_size=12))
def test_any_text_is_a_number_or_none(text):
    number = whole_number(text)
    assert number is None or (int(text, 16 if "x" in text.lower() else 10) == number)


def test_a_type_of_another_library_is_known(tmp_path):
    write(tmp_path, "m", 'input [ { name: "a" data_type: TYPE_FLOAT dims: [1] } ]\n', {"1/model.onnx": ""})
    assert "TYPE_FP32" in only(tmp_path).remedy


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="ab:{}[]<>\"'\\#$ \n\t\r,;.-0x1e5é\ufeff", max_size=60))
def test_any_text_parses_or_is_refused_with_a_place(text):
    line, column = _refused_at(text) or (1, 1)
    assert 1 <= line <= text.count("\n") + 1
    assert column >= 1


def _refused_at(text: str) -> tuple[int, int] | None:
    try:
        parse(text)
    except PbtxtError as error:
        return error.line, error.column
    return None


@settings(max_examples=100, deadline=None)
@given(
    st.text(st.characters(exclude_characters='"\\\n', exclude_categories=["Cs"]), max_size=30),
    st.integers(-(2**31), 2**31 - 1),
)
def test_values_come_back_with_their_lines(text, number):
    tree = parse(f'# c\na: "{text}"\nb {{\n  c: [ {number}, {number} ]\n}}\n')
    first, second = tree.all("b")[0].message.all("c")
    assert (tree.get("a").text, tree.get("a").line, tree.get("a").kind) == (text, 2, Kind.STRING)
    assert (int(first.text), first.line, int(second.text)) == (number, 4, number)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_give_at_most_one_finding_of_the_file(tmp_path_factory, raw):
    repo = tmp_path_factory.mktemp("r")
    write(repo, "m", raw, {"1/model.py": PYTHON_MODEL})
    assert len([rule for rule, _, _ in found(repo) if rule in ("syntax", "unreadable")]) <= 1


def test_a_key_whose_value_is_missing_is_told_by_its_own_line(tmp_path):
    write(tmp_path, "m", 'backend: "python"\nmax_batch_size:\n\ninput [ { name: "a" } ]\n')
    finding = only(tmp_path)
    assert (finding.rule, finding.place.line) == ("syntax", 4)
    assert "'max_batch_size' on line 2 has no value" in finding.found


def test_a_value_may_stand_on_a_line_of_its_own(tmp_path):
    write(tmp_path, "m", 'backend: "python"\ninput [ { name: "a"\ndata_type:\nTYPE_FP32\ndims: 1 } ]\n')
    assert found(tmp_path) == []
