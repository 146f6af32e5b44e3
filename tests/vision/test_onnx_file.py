from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import graphs
from tests.support.graphs import FLOAT, INT64, UINT8, classifier, constant_answer, graph, node, save, tensor

from trtbuild.build.onnx_edit import with_best, with_pixels
from trtbuild.build.onnx_facts import read_graph
from trtbuild.build.onnx_file import load_onnx, parse_onnx
from trtbuild.build.vision_source import read_labels
from trtbuild.errors import ModelSourceError

IMAGE = ("image", FLOAT, ["batch", 3, 16, 16])
FOLDER = Path()


def read(model: Any, **options: Any) -> Any:
    return read_graph(parse_onnx(model.SerializeToString(), FOLDER, "model.onnx"), **options)


def run(model: Any, **inputs: Any) -> list[Any]:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    outputs: list[Any] = session.run(None, inputs)
    return outputs


@given(entries=st.dictionaries(st.text(min_size=1), st.text(), max_size=4))
def test_metadata_is_read_as_it_was_written(entries: dict[str, str]) -> None:
    model = classifier(metadata=entries)
    file = parse_onnx(model.SerializeToString(), FOLDER, "model.onnx")
    assert (file.metadata, file.opset, [row.name for row in file.outputs]) == (entries, 13, ["logits"])


@pytest.mark.parametrize("data", [b"\xff", b"no protobuf", b"\x3a\xff\xff\xff\x7f", b""])
def test_other_files_are_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    with pytest.raises(ModelSourceError, match="is no ONNX file"):
        load_onnx(path)


@pytest.mark.parametrize(("opset", "what"), [(99, "newer than any"), (5, "too old")])
def test_an_opset_that_is_not_known_is_named(opset: int, what: str) -> None:
    with pytest.raises(ModelSourceError, match=f"opset {opset}, {what}"):
        read(classifier(opset=opset))


def test_external_data_is_found_beside_the_file_and_must_be_there(tmp_path: Path) -> None:
    path = save(
        classifier(100), tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=999
    )
    file = load_onnx(path)
    assert file.external_files == ("w.bin",)
    assert read_graph(file).facts.weights_bytes >= 3 * 100 * 4
    (tmp_path / "w.bin").unlink()
    with pytest.raises(ModelSourceError, match=r"keeps weights in 'w.bin', and there is no such file"):
        load_onnx(path)


def test_external_data_outside_the_folder_is_refused(tmp_path: Path) -> None:
    model = classifier()
    weights = model.graph.initializer[0]
    weights.ClearField("raw_data")
    weights.data_location = graphs.onnx.TensorProto.EXTERNAL
    weights.external_data.add(key="location", value="../secret.bin")
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelSourceError, match="outside its own folder"):
        load_onnx(tmp_path / "m.onnx")


def test_a_batch_that_is_fixed_to_1_is_freed_and_tried() -> None:
    model = classifier(batch=1)
    found = read(model)
    assert (found.facts.batch, found.facts.outputs[0].dims) == ("rewritten", (-1, 10))
    pictures = np.random.default_rng(0).random((3, 3, 16, 16), np.float32)
    (together,) = run(found.model, image=pictures)
    apart = np.concatenate([run(model, image=picture[np.newaxis])[0] for picture in pictures])
    np.testing.assert_allclose(together, apart, rtol=1e-5)


def test_a_batch_that_cannot_be_freed_stays_1_with_the_reason() -> None:
    mixing = graph(  # the mean over the batch: two pictures change each other's answer
        [
            node("ReduceMean", ["image"], ["flat"], axes=[2, 3], keepdims=0),
            node("ReduceMean", ["flat"], ["mean"], axes=[0], keepdims=1),
            node("Sub", ["flat", "mean"], ["scores"]),
        ],
        [("image", FLOAT, ["batch", 3, 16, 16])],
        [("scores", FLOAT, ["batch", 3])],
    )
    facts = read(mixing).facts
    assert facts.batch == "one"
    assert "two pictures at once give another scores than each alone" in facts.batch_note


def test_outputs_without_a_batch_get_one() -> None:
    counted = graph(
        [node("ReduceMean", ["image"], ["all"], axes=[0, 2, 3], keepdims=0)],
        [("image", FLOAT, [1, 3, 16, 16])],
        [("all", FLOAT, [3])],
    )
    found = read(counted)
    assert (found.facts.batch, found.unbatched, found.facts.outputs[0].dims) == ("one", ("all",), (1, 3))
    served = with_pixels(
        found.model, picture="image", layout="nchw", size=(16, 16), scale=[1.0] * 3, offset=[0.0] * 3,
        unbatched=found.unbatched,
    )  # fmt: skip
    pixels = np.full((1, 16, 16, 3), (1, 2, 3), np.uint8)
    np.testing.assert_allclose(run(served, pixels=pixels)[0], [[1, 2, 3]], rtol=1e-6)


@pytest.mark.parametrize(
    ("layout", "kind"), [("nchw", FLOAT), ("nhwc", FLOAT), ("nchw", graphs.FLOAT16), ("nhwc", UINT8)]
)
def test_pixels_reach_the_network_in_its_own_type_layout_and_range(layout: Any, kind: int) -> None:
    dims = [1, 3, 4, 5] if layout == "nchw" else [1, 4, 5, 3]
    model = graph([node("Identity", ["image"], ["same"])], [("image", kind, dims)], [("same", kind, dims)])
    facts = read(model).facts
    assert (facts.layout, facts.height, facts.width, facts.channels) == (layout, 4, 5, 3)
    scale, offset = ([1.0] * 3, [0.0] * 3) if kind == UINT8 else ([0.5, 1.0, 2.0], [1.0, 0.0, -3.0])
    served = with_pixels(
        read(model).model, picture="image", layout=layout, size=(4, 5), scale=scale, offset=offset,
        swap_colours=kind == UINT8,
    )  # fmt: skip
    pixels = np.random.default_rng(3).integers(0, 256, (2, 4, 5, 3), dtype=np.uint8)
    expected = pixels[..., ::-1] if kind == UINT8 else pixels * np.float32(scale) + np.float32(offset)
    expected = expected.transpose(0, 3, 1, 2) if layout == "nchw" else expected
    (seen,) = run(served, pixels=pixels)
    np.testing.assert_allclose(seen, expected, atol=0 if kind == UINT8 else 1e-3)


def test_inputs_that_repeat_the_size_are_filled_in() -> None:
    model = graph(
        [
            node("ReduceMean", ["image"], ["mean"], axes=[1, 2, 3], keepdims=0),
            node("Identity", ["orig_target_sizes"], ["sizes"]),
        ],
        [("image", FLOAT, ["batch", 3, 32, 48]), ("orig_target_sizes", INT64, ["batch", 2])],
        [("mean", FLOAT, ["batch"]), ("sizes", INT64, ["batch", 2])],
    )
    facts = read(model).facts
    assert facts.constants == {"orig_target_sizes": (48, 32)}  # RT-DETR: width first
    served = with_pixels(
        model, picture="image", layout="nchw", size=(32, 48), scale=[1.0] * 3, offset=[0.0] * 3,
        constants=facts.constants,
    )  # fmt: skip
    assert [item.name for item in served.graph.input] == ["pixels"]
    assert run(served, pixels=np.zeros((2, 32, 48, 3), np.uint8))[1].tolist() == [[48, 32]] * 2


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([IMAGE, ("prompt", INT64, ["batch", 77])], "a second input prompt"),
        ([("image", FLOAT, ["batch", 3, 16, 16]), ("other", FLOAT, ["batch", 3, 16, 16])], "2 inputs that"),
        ([("vector", FLOAT, ["batch", 512])], "no input that takes a picture"),
        ([("image", INT64, ["batch", 3, 16, 16])], "1? ?no input|inputs are image INT64|no input"),
    ],
)
def test_graphs_that_take_no_picture_are_explained(inputs: Any, message: str) -> None:
    model = graph([node("Identity", [inputs[0][0]], ["out"])], inputs, [("out", inputs[0][1], inputs[0][2])])
    with pytest.raises(ModelSourceError, match=message):
        read(model)


def test_channels_that_are_not_said_are_three() -> None:
    free = graph(
        [node("GlobalAveragePool", ["image"], ["mean"])],
        [("image", FLOAT, [None, None, None, None])],
        [("mean", FLOAT, [None, None, 1, 1])],
    )
    facts = read(free).facts
    assert (facts.layout, facts.channels, facts.outputs[0].dims) == ("nchw", 3, (-1, 3, 1, 1))


def test_a_graph_that_cannot_run_is_an_error_of_its_own() -> None:
    model = graph(
        [node("NoSuchOperator", ["image"], ["out"])], [IMAGE], [("out", FLOAT, ["batch", 3, 16, 16])]
    )
    with pytest.raises(ModelSourceError, match="cannot be loaded by onnxruntime"):
        read(model)


def test_live_bytes_are_those_of_one_picture_at_the_worst_node() -> None:
    # The mean lives with the picture (3 × 64 × 64 floats) until it is gone; the answer is 4 × 100 floats.
    facts = read(constant_answer(np.zeros((1, 4, 100)))).facts
    assert 3 * 64 * 64 * 4 <= facts.activation_bytes <= 3 * 64 * 64 * 4 + 4000


@pytest.mark.parametrize("opset", [13, 18])
def test_the_best_are_chosen_inside_the_graph(opset: int) -> None:
    shape = ["n", "t", 5]
    model = graph([node("Identity", ["x"], ["y"])], [("x", FLOAT, shape)], [("y", FLOAT, shape)], opset=opset)
    scores = np.random.default_rng(1).random((2, 3, 5), dtype=np.float32)
    y, best_id, best_score = run(with_best(model, "y"), x=scores)
    np.testing.assert_array_equal(y, scores)
    np.testing.assert_array_equal(best_id, scores.argmax(axis=2))
    np.testing.assert_array_equal(best_score, scores.max(axis=2))


def test_weights_of_a_graph_are_counted_once() -> None:
    model = graph(
        [node("Add", ["image", "bias"], ["out"])],
        [IMAGE],
        [("out", FLOAT, ["batch", 3, 16, 16])],
        [tensor("bias", np.zeros((1, 3, 16, 16), np.float32))],
    )
    assert 3 * 16 * 16 * 4 <= read(model).facts.weights_bytes <= 3 * 16 * 16 * 4 + 100


@pytest.mark.parametrize(
    ("image", "inner"), [("pixels", "pooled"), ("image", "pixels"), ("image", "trtbuild_cast_0")]
)
def test_names_that_are_added_to_a_graph_may_be_in_it(image: str, inner: str) -> None:
    weights = np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32)
    nodes = [
        node("ReduceMean", [image], [inner], axes=[2, 3], keepdims=0),
        node("MatMul", [inner, "trtbuild_scale"], ["logits"]),
    ]
    model = graph(
        nodes,
        [(image, FLOAT, ["batch", 3, 8, 8])],
        [("logits", FLOAT, ["batch", 5])],
        [tensor("trtbuild_scale", weights)],
    )
    found = read(model)
    served = with_pixels(
        found.model,
        picture=found.facts.picture,
        layout="nchw",
        size=(8, 8),
        scale=(2.0,) * 3,
        offset=(0.5,) * 3,
    )
    pixels = np.random.default_rng(2).integers(0, 256, (2, 8, 8, 3), dtype=np.uint8)
    (answer,) = run(served, pixels=pixels)
    expected = (pixels.astype(np.float32) * 2 + 0.5).mean(axis=(1, 2)) @ weights
    np.testing.assert_allclose(answer, expected, rtol=1e-4)


def test_shapes_in_external_data_are_read(tmp_path: Path) -> None:
    path = save(
        classifier(), tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0
    )
    assert read_graph(load_onnx(path)).facts.outputs[0].dims == (-1, 10)
    (tmp_path / "w.bin").write_bytes(b"")
    with pytest.raises(ModelSourceError, match="cannot be read from its external data"):
        load_onnx(path)


def test_outputs_that_nobody_reads_are_refused() -> None:
    model = classifier()
    model.graph.output[0].type.tensor_type.elem_type = graphs.onnx.TensorProto.BFLOAT16
    with pytest.raises(ModelSourceError, match="output logits is BF16"):
        read(model)
    model.graph.output[0].type.CopyFrom(
        graphs.onnx.helper.make_sequence_type_proto(graphs.onnx.helper.make_tensor_type_proto(FLOAT, None))
    )
    with pytest.raises(ModelSourceError, match="logits is no tensor"):
        read(model)
    del model.graph.output[:]
    with pytest.raises(ModelSourceError, match="has no outputs"):
        read(model)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("l.txt", "\ufeffcat\r\ndog\r\n\r\n"),
        ("l.json", '["cat", "dog"]'),
        ("l.json", '{"1": "dog", "0": "cat"}'),
        ("l.json", '{"categories": [{"id": 9, "name": "dog"}, {"id": 2, "name": "cat"}]}'),
        ("config.json", '{"architectures": ["X"], "id2label": {"0": "cat", "1": "dog"}}'),
        ("data.yaml", "path: ../coco\nnames:\n  0: cat\n  1: dog\n"),
    ],
)
def test_labels_are_read_as_they_are_kept(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(text.encode())
    assert read_labels(tmp_path / name) == ("cat", "dog")


@pytest.mark.parametrize(
    ("name", "text"),
    [("l.txt", ""), ("l.json", "{"), ("l.json", '{"1": "dog"}'), ("l.json", '{"categories": [{"id": 1}]}'),
     ("l.yaml", "a: ["), ("l.json", "3"), ("l.json", '{"categories": [3]}')],
)  # fmt: skip
def test_other_labels_are_refused(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ModelSourceError, match=r"labels|list of names"):
        read_labels(tmp_path / name)


def test_classes_behind_boxes_are_told_by_how_they_are_joined() -> None:
    tensors = [
        tensor("w", np.zeros((4, 3, 1, 1), np.float32)),
        tensor("v", np.zeros((7, 3, 1, 1), np.float32)),
    ]
    nodes = [
        node("Conv", ["image", "w"], ["boxes"]),
        node("Conv", ["image", "v"], ["logits"]),
        node("Sigmoid", ["logits"], ["scores"]),
        node("Concat", ["boxes", "scores"], ["output"], axis=1),
    ]
    outputs = [("output", FLOAT, ["batch", 11, 16, 16])]
    assert read(graph(nodes, [IMAGE], outputs, tensors)).facts.scored == {"output": 7}
    nodes[3] = node("Concat", ["scores", "boxes"], ["output"], axis=1)
    assert read(graph(nodes, [IMAGE], outputs, tensors)).facts.scored == {}


def test_only_a_division_by_a_length_normalises() -> None:
    def maker(divisor: Any) -> str:
        nodes = [node("GlobalAveragePool", ["image"], ["x"]), *divisor, node("Div", ["x", "d"], ["output"])]
        tensors = [tensor("d", np.full(1, 2.0, np.float32))] if not divisor else []
        made = read(graph(nodes, [IMAGE], [("output", FLOAT, ["batch", 3, 1, 1])], tensors))
        return str(made.facts.makers["output"])

    length = [node("ReduceL2", ["x"], ["l"], axes=[1]), node("Clip", ["l"], ["d"])]
    assert maker(length) == "LpNormalization"
    assert maker([]) == "Div"  # of a temperature


def test_any_fixed_batch_is_freed_when_runs_of_every_size_agree() -> None:
    pytest.importorskip("onnxruntime")
    found = read(classifier(batch=4))
    assert found.facts.batch == "rewritten"
    assert "fixed to 4" in found.facts.batch_note
    pictures = np.random.default_rng(0).random((5, 3, 16, 16), np.float32)
    (whole,) = run(classifier(), image=pictures)
    for count in (1, 3, 5):
        np.testing.assert_allclose(run(found.model, image=pictures[:count])[0], whole[:count], rtol=1e-5)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("folded", [False, True], ids=["expanded", "folded"])
def test_a_batch_is_freed_in_shapes_tokens_and_merged_dimensions(batch: int, folded: bool) -> None:
    pytest.importorskip("onnxruntime")
    random = np.random.default_rng(0)
    token = random.normal(size=(1, 1, 3)).astype(np.float32)
    nodes = [
        node("Reshape", ["image", "patches"], ["patched"]),
        node("Transpose", ["patched"], ["tokens"], perm=[0, 2, 1]),
        *([] if folded else [node("Expand", ["one", "spread"], ["token"])]),
        node("Concat", ["token", "tokens"], ["all"], axis=1),
        node("Reshape", ["all", "merged"], ["rows"]),
        node("MatMul", ["rows", "weights"], ["mixed"]),
        node("Reshape", ["mixed", "apart"], ["scores"]),
        node("ReduceMean", ["scores"], ["logits"], axes=[1], keepdims=0),
    ]
    shapes = {"patches": (batch, 3, 256), "merged": (batch * 257, 3), "apart": (batch, 257, 5)}
    shapes |= {} if folded else {"spread": (batch, 1, 3)}
    tensors = [tensor(name, np.array(dims, np.int64)) for name, dims in shapes.items()]
    tensors += [
        tensor("weights", random.normal(size=(3, 5)).astype(np.float32)),
        tensor("token", np.repeat(token, batch, axis=0)) if folded else tensor("one", token),
    ]
    model = graph(nodes, [("image", FLOAT, [batch, 3, 16, 16])], [("logits", FLOAT, [batch, 5])], tensors)
    found = read(model)
    assert found.facts.batch == "rewritten"
    pictures = random.random((2 * batch, 3, 16, 16), np.float32)
    halves = [run(model, image=half)[0] for half in np.split(pictures, 2)]
    np.testing.assert_allclose(run(found.model, image=pictures)[0], np.vstack(halves), rtol=1e-4, atol=1e-6)


def test_a_fixed_batch_that_mixes_its_pictures_is_explained() -> None:
    pytest.importorskip("onnxruntime")
    nodes = [node("GlobalAveragePool", ["image"], ["x"]), node("Softmax", ["x"], ["output"], axis=0)]
    image = ("image", FLOAT, [4, 3, 16, 16])
    with pytest.raises(
        ModelSourceError, match="batch is fixed to 4, and 1 pictures give another output than 4"
    ):
        read(graph(nodes, [image], [("output", FLOAT, [4, 3, 1, 1])]))
