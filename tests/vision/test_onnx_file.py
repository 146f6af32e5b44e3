from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.tiny_onnx import FLOAT, node, onnx_bytes

from trtbuild.build.onnx_file import read_facts, with_best
from trtbuild.errors import ModelSourceError

SHAPE = ("n", "t", 5)
IDENTITY = ([node("Identity", ["x"], ["y"])], {"x": (FLOAT, SHAPE)}, {"y": (FLOAT, SHAPE)})


@given(entries=st.dictionaries(st.text(min_size=1), st.text(), max_size=4))
def test_metadata_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, entries: dict[str, str]
) -> None:
    path = tmp_path_factory.mktemp("onnx") / "model.onnx"
    path.write_bytes(onnx_bytes(*IDENTITY, metadata=entries))
    facts = read_facts(path)
    assert (facts.metadata, facts.outputs, facts.opset) == (entries, ("y",), 13)


@pytest.mark.parametrize("data", [b"\xff", b"no protobuf", b"\x3a\xff\xff\xff\x7f"])
def test_other_files_are_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    with pytest.raises(ModelSourceError, match="is no ONNX file"):
        read_facts(path)


def test_the_best_are_chosen_inside_the_graph() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(with_best(onnx_bytes(*IDENTITY), "y"))
    scores = np.random.default_rng(1).random((2, 3, 5), dtype=np.float32)
    y, best_id, best_score = session.run(["y", "best_id", "best_score"], {"x": scores})
    np.testing.assert_array_equal(y, scores)
    np.testing.assert_array_equal(best_id, scores.argmax(axis=2))
    np.testing.assert_array_equal(best_score, scores.max(axis=2))
