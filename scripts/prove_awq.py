"""AWQ against plain rounding on SmolLM2-135M: squared error of every layer's outputs, for real inputs.

The weights come from the GGUF that a package carries, as a 16-bit Hugging Face folder. Calibrated is with the
first eight shipped texts; the inputs of the layers are those of the others and of the licence's paragraphs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from trtbuild.build import quantise
from trtbuild.build.calibration import load_calibration
from trtbuild.build.proof import LayerProof, prove
from trtbuild.build.weights import packaged_file
from trtbuild.catalog.models import find_model

GROUP = 64  # hidden 576 = 9 × 64
CALIBRATED = 8
HELD_OUT_TOKENS = 256


def write_hugging_face(folder: Path) -> None:
    """SmolLM2 as safetensors with its tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

    packaged = find_model("smollm2-135m").packaged[0]
    path = packaged_file(
        package=packaged.package,
        version=packaged.version,
        file=packaged.file,
        sha256=packaged.sha256,
        install="scripts/prove-awq",
    )
    loaded = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, torch_dtype=torch.float32)
    fresh = LlamaForCausalLM(loaded.config)
    fresh.load_state_dict(loaded.state_dict())
    fresh.half().save_pretrained(folder)
    AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name).save_pretrained(folder)


def input_grams(folder: Path, texts: list[str]) -> dict[str, Any]:
    """Sum of x·xᵀ over the inputs of every linear layer, by the layer's name."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32).eval()
    grams: dict[str, Any] = defaultdict(float)

    def hook(name: str) -> Any:
        def add(_: Any, inputs: Any) -> None:
            rows = inputs[0].reshape(-1, inputs[0].shape[-1]).double().numpy()
            grams[name] = grams[name] + rows.T @ rows

        return add

    # q, k and v read the same inputs, gate and up too: the proof asks for the first of each.
    wanted = ("q_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    for name, module in model.named_modules():
        if name.endswith(wanted):
            module.register_forward_pre_hook(hook(name))
    with torch.no_grad():
        for text in texts:
            ids = tokenizer(text, return_tensors="pt").input_ids[:, :HELD_OUT_TOKENS]
            model(input_ids=ids, use_cache=False)
    return dict(grams)


def by_kind(layers: tuple[LayerProof, ...]) -> dict[str, list[LayerProof]]:
    kinds: dict[str, list[LayerProof]] = defaultdict(list)
    for layer in layers:
        kinds[".".join(layer.name.split(".")[-2:])].append(layer)
    return kinds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures there")
    args = parser.parse_args()
    started = time.monotonic()
    shipped = load_calibration(None, quant="fp8").texts
    licence = Path("LICENSE").read_text(encoding="utf-8").split("\n\n")
    held_out = [*shipped[CALIBRATED:], *(part for part in licence if len(part) > 400)]
    with tempfile.TemporaryDirectory() as folder:
        source, calibration, output = (Path(folder, name) for name in ("source", "calibration", "checkpoint"))
        write_hugging_face(source)
        load_calibration(None, quant="awq", samples=CALIBRATED).write(calibration)
        words = ["--model_dir", source, "--output_dir", output, "--calib_dataset", calibration]
        words += ["--calib_size", CALIBRATED, "--calib_max_seq_length", 512, "--qformat", "int4_awq"]
        words += ["--awq_block_size", GROUP]
        if code := quantise.main([str(word) for word in words]):
            return code
        proof = prove(source, output, grams=input_grams(source, held_out))
    rows = {}
    for kind, layers in by_kind(proof.layers).items():
        awq = np.array([layer.weighted_error for layer in layers], float)
        plain = np.array([layer.naive_weighted_error for layer in layers], float)
        rows[kind] = {
            "layers": len(layers),
            "awq_better": int((awq < plain).sum()),
            "awq_error": float(awq.mean()),
            "rounding_error": float(plain.mean()),
        }
    total = {name: sum(row[name] for row in rows.values()) for name in ("layers", "awq_better")}
    print(f"\n{'layer':16} {'layers':>6} {'AWQ better':>10} {'AWQ error':>10} {'rounding':>10}")
    for kind, row in rows.items():
        print(
            f"{kind:16} {row['layers']:6} {row['awq_better']:10} {row['awq_error']:10.3%} "
            f"{row['rounding_error']:10.3%}"
        )
    awq_error = float(np.mean([layer.weighted_error for layer in proof.layers]))
    plain_error = float(np.mean([layer.naive_weighted_error for layer in proof.layers]))
    print(
        f"{'all':16} {total['layers']:6} {total['awq_better']:10} {awq_error:10.3%} {plain_error:10.3%}\n"
        f"worst weight: {proof.summary().worst:.3f} of half a step; {len(held_out)} texts that were not "
        "calibrated "
        f"with; {time.monotonic() - started:.0f} s"
    )
    if args.json is not None:
        args.json.write_text(
            json.dumps({"kinds": rows, "awq": awq_error, "rounding": plain_error}, indent=2) + "\n"
        )
    return 0 if awq_error < plain_error else 1


if __name__ == "__main__":
    sys.exit(main())
