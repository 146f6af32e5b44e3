"""Golden configurations: what is written for a fixed plan, kept in git so that a change of it is seen.

python -m tests.support.golden           exits 1 and names what differs
python -m tests.support.golden --write   writes them anew
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.support.plans import detector_plan, llm_plan, ocr_plan, plan_of, spec_of

from trtbuild.plan.model import Plan
from trtbuild.repository.compose import compose
from trtbuild.repository.contents import Text
from trtbuild.spec import Target

FOLDER = Path(__file__).parents[1] / "golden" / "configs"
# Release → TensorRT-LLM: 0.12, 0.16, 0.18, 0.18.2, 0.19, 0.20, 1.0, 1.1; of these the parts that change most.
OLDER = ("24.08", "24.12", "25.03", "25.04", "25.05", "25.06", "25.10", "25.12")
OLDER_PARTS = ("_engine", "_ensemble")


def expected() -> dict[Path, str]:
    """Path below ``FOLDER`` → text."""
    files = _configs("engine-26.07", plan_of(llm_plan(), ocr_plan(), detector_plan()))
    files |= _configs(
        "local", plan_of(llm_plan("smollm2-135m"), ocr_plan(), detector_plan(), target=Target.LOCAL)
    )
    for release in OLDER:
        every = _configs(f"engine-{release}", plan_of(llm_plan(quant="fp16"), container=release))
        files |= {path: text for path, text in every.items() if path.stem.endswith(OLDER_PARTS)}
    return files


def _configs(case: str, plan: Plan) -> dict[Path, str]:
    with tempfile.TemporaryDirectory() as scratch:
        assets, weights = _sources(plan, Path(scratch))
        repository, _ = compose(plan, spec_of(*plan.models), text_assets=assets, weights=weights)
    texts = {name: folder.files["config.pbtxt"] for name, folder in repository.folders().items()}
    return {
        Path(case, f"{name}.pbtxt"): content.data.decode()
        for name, content in texts.items()
        if isinstance(content, Text)
    }


def _sources(plan: Plan, scratch: Path) -> tuple[dict[str, Path], dict[str, Path]]:
    """Empty stand-ins for the files of a local plan: configurations do not depend on them."""
    if plan.target is not Target.LOCAL:
        return {}, {}
    (scratch / "tokenizer.json").write_text("{}")
    for name in ("weights.gguf", "network.onnx"):
        (scratch / name).write_bytes(b"")
    weights = {llm.name: scratch / "weights.gguf" for llm in plan.llms}
    for vision in plan.visions:
        weights |= {network.model: scratch / "network.onnx" for network in vision.networks}
    return {llm.name: scratch for llm in plan.llms}, weights


def stale() -> list[str]:
    """What differs between the golden files and what is written now."""
    files = expected()
    found = {path.relative_to(FOLDER) for path in FOLDER.rglob("*.pbtxt")}
    lines = [f"{path} is missing" for path in sorted(files.keys() - found)]
    lines += [f"{path} is not generated any more" for path in sorted(found - files.keys())]
    both = sorted(files.keys() & found)
    return lines + [f"{path} differs" for path in both if (FOLDER / path).read_text() != files[path]]


def write() -> None:
    """Writes the golden files anew, and removes those that are not generated any more."""
    files = expected()
    for path in FOLDER.rglob("*.pbtxt"):
        if path.relative_to(FOLDER) not in files:
            path.unlink()
    for path, text in files.items():
        (FOLDER / path).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / path).write_text(text)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write()
    else:
        sys.exit("\n".join(stale()) or 0)
