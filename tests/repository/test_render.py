"""Templates and the parser: what is written is what protobuf reads."""

from __future__ import annotations

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError
from tritonclient.grpc import model_config_pb2

from trtbuild.errors import RepositoryError
from trtbuild.repository.render import comment, parse_config, quoted, render


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_quoted_string_is_read_back_as_it_was(value: str) -> None:
    config = model_config_pb2.ModelConfig()
    text_format.Parse(f"name: {quoted(value)}", config)
    assert config.name == value


@given(st.text())
def test_a_comment_stays_on_its_line(value: str) -> None:
    assert len(f"# {comment(value)}".splitlines()) == 1


def test_an_undefined_name_is_an_error_and_not_an_empty_text() -> None:
    with pytest.raises(UndefinedError):
        render("llm_engine/config.pbtxt.j2", name="x", origin="y")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: ", "does not parse"),
        ('name: "a" max_batch_size: ${triton_max_batch_size}', "does not parse"),
        ('name: "a" unknown_field: 1', "does not parse"),
        ('name: "b"', "is called 'b'"),
        ('name: "a" parameters { key: "k" value { string_value: "${engine_dir}" } }', "unfilled placeholder"),
    ],
)
def test_what_is_no_finished_configuration_is_refused(text: str, message: str) -> None:
    with pytest.raises(RepositoryError, match=message):
        parse_config(text, "a")
