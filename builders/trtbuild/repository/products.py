"""Puts the products of a build into a repository: whole, and the file without which nothing loads last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trtbuild.build.commands import LORA_FILES, TOKENIZER_INFO
from trtbuild.build.jobs import Job
from trtbuild.errors import BuildError
from trtbuild.plan.model import LlmPlan
from trtbuild.repository import steps
from trtbuild.repository.llm import TOKENIZER_FILES
from trtbuild.repository.llmapi import CHECKPOINT
from trtbuild.repository.names import LlmNames
from trtbuild.repository.transaction import exclusive
from trtbuild.spec import Target

TOKENIZER = "tokenizer.json"
LORAS = "lora"  # folder of converted adapters beside the engine


@dataclass(frozen=True)
class Products:
    """Where the products of one model's build go, and from which of its work folder's.

    Attributes:
        tokenizer, engine: folders inside the repository.
        loaded: product that the engine's folder gets: ``engine``, or what the LLM API loads.
        files: what is taken over of a compiled engine, config.json last: without it nothing loads.
        extras: product → path below ``engine`` for what an engine may use beside its own files.
    """

    tokenizer: str
    engine: str
    loaded: str
    files: tuple[str, ...]
    extras: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, job: Job, names: LlmNames, target: Target) -> Products:
        """Products of a job for the folders called ``names``."""
        compiled = target is Target.ENGINE
        made = [command.product for command in job.commands if command.product != "tokenizer_info"]
        ranks = tuple(f"rank{rank}.engine" for rank in range(job.llm.tp))
        loras = tuple((f"lora-{name}", f"{LORAS}/{name}") for name in sorted(job.loras)) if compiled else ()
        return cls(
            tokenizer=f"{names.front}/1/tokenizer",
            engine=f"{names.engine}/1",
            loaded=made[-1] if made else "source",
            files=(*ranks, "config.json") if compiled else (),
            extras=loras,
        )


def install(repo: Path, work: Path, products: Products, *, llm: LlmPlan, key: str) -> None:
    """Takes a finished build over into its repository.

    Args:
        work: the build's work folder.
        key: of the last step; a folder that holds the same already is left alone.

    Raises:
        BuildError: the weights come without a tokenizer.
        RepositoryError: another process is writing to the repository.
    """
    engine = repo / products.engine
    with exclusive(repo):
        _tokenizer(work / "source", repo / products.tokenizer, llm.name)
        if not products.files:
            _install_folder(work / products.loaded, engine / CHECKPOINT, key)
            return
        for product, place in products.extras:
            _install_files(work / product, engine / place, LORA_FILES)
        _install_files(work / "tokenizer_info", engine, (TOKENIZER_INFO,))
        _install_files(work / products.loaded, engine, products.files)


def _tokenizer(source: Path, folder: Path, model: str) -> None:
    if not any((place / TOKENIZER).is_file() for place in (source, folder)):
        raise BuildError(
            f"{model}: the weights come without {TOKENIZER}",
            f"save a fast tokenizer of the model into {source}, and run it again",
        )
    _install_files(source, folder, TOKENIZER_FILES)


def _install_files(source: Path, folder: Path, names: Sequence[str]) -> None:
    """In the order of ``names``, each at once or not at all; missing ones are left out."""
    for name in names:
        old, new = source / name, folder / name
        if not old.is_file() or (new.exists() and new.samefile(old)):
            continue
        steps.make_folder(folder)
        partial = folder / f".{name}.partial"
        steps.remove_file(partial)
        steps.link_file(old.resolve(), partial)
        steps.move(partial, new)


def _install_folder(source: Path, folder: Path, key: str) -> None:
    memo = folder.with_name(f"{folder.name}.key")
    if folder.is_dir() and memo.is_file() and memo.read_text(encoding="utf-8").strip() == key:
        return
    partial = folder.with_name(f"{folder.name}.partial")
    steps.remove_file(memo)
    steps.remove_tree(partial)
    for path in sorted(source.rglob("*")):
        inside = path.relative_to(source)
        if path.is_file() and not inside.parts[0].startswith("."):  # the hub's own notes on a download
            target = partial / inside
            steps.make_folder(target.parent)
            steps.link_file(path.resolve(), target)
    steps.remove_tree(folder)
    steps.move(partial, folder)
    steps.write_file(memo, f"{key}\n".encode())
