"""A model whose folder is gone goes with those that need it; the others are served. /dev/shm by the plan."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.support.served import kept, record_of

from trtbuild.errors import ServeError
from trtbuild.serve import contents, room
from trtbuild.serve.cautions import cautions

WRITTEN = Path(__file__).parents[2] / "model_repo"
OCR = {"ocr", "ocr_cls", "ocr_det", "ocr_rec"}
LLM = {"qwen-7b", "qwen-7b_engine", "qwen-7b_ensemble", "qwen-7b_postprocess", "qwen-7b_preprocess"}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRTBUILD_STATE", str(tmp_path / "state"))
    return Path(shutil.copytree(WRITTEN, tmp_path / "repo"))


def test_a_whole_repository_is_loaded_whole(repository: Path) -> None:
    assert contents.left_out(repository) == {}
    assert contents.loadable(repository) is None
    assert contents.caution(repository) is None


@pytest.mark.parametrize(
    ("gone", "without"),
    [
        ("qwen-7b", {"qwen-7b", "qwen-7b_preprocess", "qwen-7b_postprocess", "qwen-7b_ensemble"}),
        ("qwen-7b_engine", {"qwen-7b_engine", "qwen-7b", "qwen-7b_ensemble"} | LLM),
        ("qwen-7b_postprocess", {"qwen-7b_postprocess", "qwen-7b_ensemble"}),
        ("qwen-7b_postprocess/config.pbtxt", {"qwen-7b_postprocess", "qwen-7b_ensemble"}),
        ("qwen-7b_postprocess/1", {"qwen-7b_postprocess", "qwen-7b_ensemble"}),
        ("ocr_rec", {"ocr_rec", "ocr"}),
        ("ocr", {"ocr"}),
    ],
)
def test_what_is_gone_takes_along_what_needs_it_and_nothing_else(
    repository: Path, gone: str, without: set[str]
) -> None:
    target = repository / gone
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    assert contents.left_out(repository).keys() == without
    assert set(contents.loadable(repository) or ()) == (OCR | LLM) - without
    said = contents.caution(repository)
    assert said is not None
    assert f"trtbuild remove {'ocr' if gone.startswith('ocr') else 'qwen-7b'} " in said
    assert all(name in said for name in without)


def test_an_ensemble_of_ones_own_that_lacks_a_member_is_left_out(tmp_path: Path) -> None:
    for name, text in (
        ("alone", 'name: "alone"\nbackend: "python"\n'),
        (
            "both",
            'name: "both"\nplatform: "ensemble"\nensemble_scheduling { step { model_name: "other" } }\n',
        ),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.pbtxt").write_text(text)
    assert contents.left_out(tmp_path) == {"both": "it needs other"}
    assert contents.loadable(tmp_path) == ["alone"]


def test_where_nothing_is_left_nothing_is_started(repository: Path) -> None:
    for name in OCR | LLM:
        shutil.rmtree(repository / name)
    with pytest.raises(ServeError, match="no model that can be loaded"):
        contents.loadable(repository)


class _Room:
    """A /dev/shm with this much free."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free_bytes = 0
        monkeypatch.setattr(room.shutil, "disk_usage", lambda path: SimpleNamespace(free=self.free_bytes))


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> _Room:
    return _Room(monkeypatch)


@pytest.fixture
def other(repository: Path) -> Iterator[Path]:
    """Another repository, whose server runs and has grown by nothing yet."""
    path = Path(shutil.copytree(WRITTEN, repository.parent / "other"))
    with kept(path, record_of(path, server_id="trtbuild-none-0-")):
        yield path


def test_room_for_the_start_alone_is_served_with_a_caution(repository: Path, free: _Room) -> None:
    plan = contents.plan_of(repository)
    assert plan is not None
    free.free_bytes = plan.shm_bytes
    assert room.shortage(repository) is None
    free.free_bytes -= 1
    said = room.shortage(repository)
    assert said is not None
    assert f"the plan counts {plan.shm_bytes / 2**20:.0f} MiB" in said
    assert "--shm-size" in said
    room.check_room(repository)  # it starts all the same


def test_what_another_server_may_still_grow_by_is_not_free(
    repository: Path, other: Path, free: _Room
) -> None:
    plan = contents.plan_of(repository)
    assert plan is not None
    free.free_bytes = 2 * plan.shm_bytes
    assert room.shortage(repository) is None
    free.free_bytes -= 2**20
    assert "servers that run here may take" in (room.shortage(repository) or "")
    assert room.shortage(other) is None  # its own is not counted twice, and nothing else runs


def test_a_repository_for_a_gpu_has_the_shm_of_its_container(repository: Path, free: _Room) -> None:
    assert cautions(repository) == []
