"""The files of a model, and what is refused before a plan is made of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.tiny_checkpoints import CONFIG, safetensors_bytes, write_model

from trtbuild.build.checkpoints import read_checkpoint
from trtbuild.build.commands import _FETCH, FETCHED_PATTERNS
from trtbuild.build.weights import inspect_weights
from trtbuild.errors import ModelSourceError
from trtbuild.plan.architecture import from_hf_config
from trtbuild.plan.quant_configs import refuse_unreadable

HIDDEN = 256  # of CONFIG


def test_weights_that_lie_in_a_folder_twice_count_once(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    alone = inspect_weights(folder).size_bytes
    again = safetensors_bytes({"layers.0.attention.wq.weight": np.zeros((HIDDEN, HIDDEN), np.float16)})
    (folder / "consolidated.safetensors").write_bytes(again)
    assert inspect_weights(folder).size_bytes == alone
    assert read_checkpoint(folder).size_bytes == alone


_HUB = """
import fnmatch, json, os, shutil
HUB = os.environ["FAKE_HUB"]
def list_repo_files(repo, revision):
    return sorted(os.listdir(HUB))
def snapshot_download(repo, revision, local_dir, allow_patterns):
    os.makedirs(local_dir, exist_ok=True)
    for name in os.listdir(HUB):
        if any(fnmatch.fnmatch(name, pattern) for pattern in allow_patterns):
            shutil.copy(os.path.join(HUB, name), local_dir)
"""


@pytest.mark.parametrize(
    ("hub", "index", "taken", "left"),
    [
        (["model-1.safetensors", "model-2.safetensors", "consolidated.safetensors"],
         ["model-1.safetensors", "model-2.safetensors"],
         {"model-1.safetensors", "model-2.safetensors"}, "consolidated.safetensors"),
        (["model.safetensors", "consolidated-00001.safetensors"], None,
         {"model.safetensors"}, "consolidated-00001.safetensors"),
        (["pytorch_model.safetensors"], None, {"pytorch_model.safetensors"}, ""),
        (["weights-a.safetensors", "model.safetensors"], ["weights-a.safetensors"],
         {"weights-a.safetensors"}, "model.safetensors"),
    ],
)  # fmt: skip
def test_a_fetch_takes_the_files_of_the_model_and_names_what_it_leaves(
    tmp_path: Path, hub: list[str], index: list[str] | None, taken: set[str], left: str
) -> None:
    there = tmp_path / "hub"
    there.mkdir()
    for name in [*hub, "config.json", "pytorch_model.bin"]:
        (there / name).write_text("{}")
    if index is not None:
        text = json.dumps({"weight_map": {str(number): name for number, name in enumerate(index)}})
        (there / "model.safetensors.index.json").write_text(text)
    (tmp_path / "huggingface_hub.py").write_text(_HUB)
    done = subprocess.run(
        [sys.executable, "-c", _FETCH, "a/b", "main", str(tmp_path / "got"), *FETCHED_PATTERNS],
        env={"PYTHONPATH": str(tmp_path), "FAKE_HUB": str(there)},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    got = {path.name for path in (tmp_path / "got").iterdir()}
    assert {name for name in got if name.endswith(".safetensors")} == taken
    assert "config.json" in got
    assert "pytorch_model.bin" not in got
    assert (left in done.stdout) if left else not done.stdout


@pytest.mark.parametrize(
    "section",
    [
        {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True},
        {"quant_method": "gptq", "bits": 8, "group_size": 128},
        {"quant_method": "bitsandbytes", "load_in_4bit": True},
        {"quant_method": "fbgemm_fp8"},
        {"quant_method": "hqq"},
    ],
)
def test_what_no_target_reads_is_refused_instead_of_being_planned_as_16_bit(
    tmp_path: Path, section: dict[str, Any]
) -> None:
    with pytest.raises(ModelSourceError) as caught:
        refuse_unreadable(tmp_path, {**CONFIG, "quantization_config": section})
    assert any("--quant awq" in remedy for remedy in caught.value.remedies)


@pytest.mark.parametrize(
    "absurd",
    [
        {"hidden_size": 10**12},
        {"num_hidden_layers": 10**6},
        {"vocab_size": 10**10},
        {"max_position_embeddings": 10**11},
        {"intermediate_size": 10**9},
        # each of them thinkable, all of them together not: 4096 layers of 262,144 x 4 M
        {"num_hidden_layers": 4096, "hidden_size": 262_144, "intermediate_size": 4_194_304},
    ],
)
def test_sizes_beyond_any_model_are_refused(absurd: dict[str, int]) -> None:
    with pytest.raises(ModelSourceError, match="no model has more"):
        from_hf_config({**CONFIG, **absurd})
