"""What a vision pipeline's repository needs beside the files of its package.

Where those files are is found by `trtbuild.prepare.vision_files`; this module makes the rest from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trtbuild.build.onnx_edit import with_best
from trtbuild.build.onnx_file import load_onnx
from trtbuild.build.vision_source import LABELS_FILE, MODEL_FILE, SingleNetwork, labels_text
from trtbuild.catalog.vision import NetworkRow, pipeline
from trtbuild.errors import ModelSourceError
from trtbuild.plan.model import VisionPlan


def ocr_assets(weights: Mapping[str, Path]) -> dict[str, bytes]:
    """Files of the OCR front's version folder that come out of its networks, by relative path.

    ``characters.txt`` is the recogniser's alphabet, one character a line: the one in its ONNX metadata, and
    the space behind it, as PP-OCR appends it. Label i of the network stands for line i (the blank is 0).

    Args:
        weights: role → ONNX file.

    Raises:
        ModelSourceError: if the recogniser carries no alphabet.
    """
    alphabet = load_onnx(weights["rec"]).metadata.get("character")
    if not alphabet:
        raise ModelSourceError(
            f"{weights['rec']} has no alphabet in its metadata (key `character`): its labels cannot be read",
            "take the recogniser of the package that `trtbuild models` names for this pipeline",
        )
    return {"characters.txt": "\n".join([*alphabet.split("\n"), " "]).encode("utf-8")}


def served_network(row: NetworkRow, path: Path) -> bytes | None:
    """The ONNX file as it is served, or None where that is the file itself.

    A recogniser scores 18,710 characters at each step; its best ones are chosen inside the graph, so that
    12 bytes a step leave the device and pass through shared memory instead of 75 KB.

    Raises:
        ModelSourceError: if the graph is not one to which that can be added.
    """
    if row.best_of is None:
        return None
    file = load_onnx(path)
    outputs = [output.name for output in file.outputs]
    if row.best_of not in outputs:
        raise ModelSourceError(
            f"{path} has the outputs {', '.join(outputs)}; "
            f"a recogniser with the output {row.best_of} is expected",
        )
    data: bytes = with_best(file.model, row.best_of).SerializeToString()
    return data


def write_vision_assets(
    plan: VisionPlan, files: Mapping[str, Path], folder: Path
) -> tuple[Path, dict[str, Path]]:
    """Writes what is made from a pipeline's files.

    Args:
        files: model name of each network → its file as it came.
        folder: where to write; it must not exist.

    Returns:
        The folder with the front's assets, and each network's file as it is served, by model name.
    """
    row = pipeline(plan.pipeline)
    assets, networks = folder / "front", folder / "networks"
    for directory in (assets, networks):
        directory.mkdir(parents=True)
    for name, content in ocr_assets({item.role: files[item.model] for item in plan.networks}).items():
        (assets / name).write_bytes(content)
    served = {}
    for item in plan.networks:
        served[item.model] = files[item.model]
        if (made := served_network(row.network(item.role), files[item.model])) is not None:
            served[item.model] = networks / f"{item.model}.onnx"
            served[item.model].write_bytes(made)
    return assets, served


def write_single_network(plan: VisionPlan, network: SingleNetwork, folder: Path) -> tuple[Path, Path]:
    """Writes what a single network's repository needs.

    Args:
        folder: where to write; it must not exist.

    Returns:
        The folder with the post-processing's assets, and the one that becomes the network's version folder:
        the graph as it is served, with links to its external data.
    """
    assets, served = folder / "postprocess", folder / "network"
    for directory in (assets, served):
        directory.mkdir(parents=True)
    if network.labels:
        (assets / LABELS_FILE).write_bytes(labels_text(network.labels))
    (served / MODEL_FILE).write_bytes(network.served(plan))
    for name in network.file.external_files:
        (served / name).parent.mkdir(parents=True, exist_ok=True)
        (served / name).symlink_to((network.file.folder / name).resolve())
    return assets, served
