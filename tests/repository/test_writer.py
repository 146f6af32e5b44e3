"""Repositories on disk: what is written, what is left alone, what is refused."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from trtbuild.errors import RepositoryError
from trtbuild.plan.model import Plan
from trtbuild.repository.manifest import verify_manifest
from trtbuild.repository.transaction import exclusive, staging_of
from trtbuild.repository.writer import check_reference, remove_model
from trtbuild.spec import Target


def built(shop: Any, name: str = "qwen-7b") -> Path:
    """Puts a compiled engine and a tokenizer where the build script puts them."""
    engine, tokenizer = shop.repo / f"{name}_engine" / "1", shop.repo / name / "1" / "tokenizer"
    (engine / "rank0.engine").write_bytes(b"compiled for hours")
    (engine / "config.json").write_text('{"build_config": {}, "pretrained_config": {}, "version": "1.2.1"}')
    tokenizer.mkdir()
    (tokenizer / "tokenizer.json").write_text("{}")
    return engine / "rank0.engine"


def test_an_engine_repository_has_its_folders_and_files_and_nothing_else(shop: Any) -> None:
    report = shop.write(shop.plan(shop.llm(), shop.ocr()))
    names = ("qwen-7b", *(f"qwen-7b_{part}" for part in ("preprocess", "engine", "postprocess", "ensemble")))
    folders = {*names, "ocr", "ocr_det", "ocr_cls", "ocr_rec"}
    assert set(report.written) == folders
    assert {path.name for path in shop.repo.iterdir() if path.is_dir()} == folders
    scripts = {"launch.sh", "build_engines.sh", "Dockerfile", "compose.yaml"}
    files = {"trtbuild.json", "plan.json", "deployment.yaml", "README.md", *scripts}
    assert {path.name for path in shop.repo.iterdir() if path.is_file()} == files
    assert all((shop.repo / name / "config.pbtxt").is_file() for name in folders)
    assert all((shop.repo / name / "1").is_dir() for name in folders)
    assert {path.name for path in shop.folder.iterdir()} == {
        "model_repo",
        "tokenizer",
        "weights.gguf",
        "network.onnx",
    }
    assert os.access(shop.repo / "launch.sh", os.X_OK)


def test_a_local_repository_holds_weights_and_tokenizer(shop: Any) -> None:
    shop.write(shop.plan(shop.llm(), shop.ocr(), target=Target.LOCAL))
    assert (shop.repo / "qwen-7b_engine/1/model.gguf").samefile(shop.gguf)
    assert (shop.repo / "ocr_rec/1/model.onnx").samefile(shop.onnx)
    config = json.loads((shop.repo / "qwen-7b_engine/1/config.json").read_text())
    assert config["build_config"]["max_batch_size"] == 32
    tokenizer = shop.repo / "qwen-7b/1/tokenizer"
    assert [path.name for path in tokenizer.iterdir()] == ["tokenizer.json"]  # no weights, no pickles
    assert not (shop.repo / "launch.sh").exists()


def test_an_openvino_folder_is_taken_over_file_by_file(shop: Any) -> None:
    folder = shop.folder / "ir"
    folder.mkdir()
    for name in ("openvino_model.xml", "openvino_model.bin", "openvino_tokenizer.xml", "config.json"):
        (folder / name).write_text(name)
    plan = shop.plan(shop.llm(), target=Target.LOCAL)
    shop.write(plan, text_assets={"qwen-7b": shop.tokenizer}, weights={"qwen-7b": folder})
    names = {path.name for path in (shop.repo / "qwen-7b_engine/1").iterdir()}
    assert names == {"openvino_model.xml", "openvino_model.bin", "openvino_tokenizer.xml", "config.json"}
    # config.json is the engine's, not the model's.
    assert "build_config" in json.loads((shop.repo / "qwen-7b_engine/1/config.json").read_text())


def test_writing_twice_touches_nothing(shop: Any) -> None:
    plan = shop.plan(shop.llm(), shop.ocr())
    shop.write(plan)
    before = shop.files()
    report = shop.write(plan)
    assert shop.files() == before
    assert report.written == ()
    assert not staging_of(shop.repo).exists()


def test_two_runs_from_nothing_give_the_same_bytes(shop: Any) -> None:
    plan = shop.plan(shop.llm(), shop.ocr())
    shop.write(plan, output=shop.folder / "one")
    shop.write(plan, output=shop.folder / "two")
    contents = [
        {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        for root in (shop.folder / "one", shop.folder / "two")
    ]
    assert contents[0] == contents[1]


def test_a_change_of_one_number_rewrites_only_the_files_that_hold_it(shop: Any) -> None:
    shop.write(shop.plan(shop.llm()))
    before = shop.files()
    report = shop.write(shop.plan(shop.llm(kv_tokens=1024)))
    after = shop.files()
    assert report.written == ("qwen-7b", "qwen-7b_engine")  # the front counts what the pool could keep
    changed = {name for name in after if after[name] != before.get(name)}
    configs = {"qwen-7b/config.pbtxt", "qwen-7b_engine/config.pbtxt"}
    assert changed == {*configs, "README.md", "plan.json", "trtbuild.json"}


@pytest.mark.parametrize("target", [Target.ENGINE, Target.LOCAL])
def test_a_second_model_leaves_the_first_byte_for_byte(shop: Any, target: Target) -> None:
    first = shop.llm("a")
    shop.write(shop.plan(first, target=target))
    before = shop.files(*(folder.name for folder in shop.repo.iterdir() if folder.is_dir()))
    shop.write(shop.plan(first, shop.llm("b"), shop.ocr(), target=target))
    assert {name: entry for name, entry in shop.files().items() if name in before} == before
    assert (shop.repo / "b_engine").is_dir()


def test_removing_a_model_removes_only_its_own(shop: Any) -> None:
    a, b = shop.llm("a"), shop.llm("b")
    shop.write(shop.plan(a, b))
    (shop.repo / "mine").mkdir()
    (shop.repo / "mine/config.pbtxt").write_text("of the user")
    kept = shop.files("a", "a_engine", "a_preprocess", "a_postprocess", "a_ensemble", "mine")
    report = remove_model(shop.repo, "b", plan=shop.plan(a), spec=shop.spec(a))
    assert set(report.removed) == {"b", "b_engine", "b_preprocess", "b_postprocess", "b_ensemble"}
    assert {name: entry for name, entry in shop.files().items() if "/" in name} == kept
    assert verify_manifest(shop.repo) == []
    assert list(json.loads((shop.repo / "trtbuild.json").read_text())["models"]) == ["a"]


def test_removing_equals_never_having_added(shop: Any) -> None:
    a, b = shop.llm("a"), shop.llm("b")
    shop.write(shop.plan(a))
    before = {name: entry[0] for name, entry in shop.files().items()}
    shop.write(shop.plan(a, b))
    remove_model(shop.repo, "b", plan=shop.plan(a), spec=shop.spec(a))
    assert {name: entry[0] for name, entry in shop.files().items()} == before


def test_removing_what_is_not_there_names_what_is(shop: Any) -> None:
    a = shop.llm("a")
    shop.write(shop.plan(a))
    with pytest.raises(RepositoryError, match="no model 'b'") as caught:
        remove_model(shop.repo, "b", plan=shop.plan(a), spec=shop.spec(a))
    assert "it has a" in caught.value.remedies


def test_models_that_the_plan_leaves_out_are_not_dropped_in_passing(shop: Any) -> None:
    shop.write(shop.plan(shop.llm("a")))
    before = shop.files()
    with pytest.raises(RepositoryError, match="also holds a"):
        shop.write(shop.plan(shop.llm("b")))
    assert shop.files() == before
    report = shop.write(shop.plan(shop.llm("b")), drop_others=True)
    assert {"a", "a_engine"} <= set(report.removed)
    assert not (shop.repo / "a").exists()


@pytest.mark.parametrize("make", ["file.txt", "folder/inside", ".git/config"])
def test_a_folder_with_something_not_ours_is_refused_by_name(shop: Any, make: str) -> None:
    path = shop.repo / make
    path.parent.mkdir(parents=True)
    path.write_text("precious")
    with pytest.raises(RepositoryError, match=re.escape(make.split("/")[0])):
        shop.write(shop.plan(shop.llm()))
    assert path.read_text() == "precious"
    assert [entry.name for entry in shop.repo.iterdir()] == [make.split("/")[0]]
    assert not staging_of(shop.repo).exists()


def test_an_empty_folder_is_taken(shop: Any) -> None:
    shop.repo.mkdir()
    assert shop.write(shop.plan(shop.llm())).written


def test_a_folder_of_the_user_with_a_models_name_is_refused(shop: Any) -> None:
    shop.write(shop.plan(shop.llm("a")))
    mine = shop.repo / "b_engine" / "1"
    mine.mkdir(parents=True)
    with pytest.raises(RepositoryError, match="b_engine exists and was not written by trtbuild"):
        shop.write(shop.plan(shop.llm("a"), shop.llm("b")))
    assert list((shop.repo / "b_engine").iterdir()) == [mine]


def test_a_file_in_the_place_of_the_repository_is_refused(shop: Any) -> None:
    shop.repo.write_text("not a folder")
    with pytest.raises(RepositoryError, match="is a file"):
        shop.write(shop.plan(shop.llm()))
    assert shop.repo.read_text() == "not a folder"


def test_a_model_folder_that_is_a_link_elsewhere_is_not_written_through(shop: Any) -> None:
    shop.write(shop.plan(shop.llm()))
    outside = shop.folder / "outside"
    (shop.repo / "qwen-7b_engine").rename(outside)
    (shop.repo / "qwen-7b_engine").symlink_to(outside)
    before = {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()}
    with pytest.raises(RepositoryError, match="is a link"):
        shop.write(shop.plan(shop.llm(kv_tokens=1024)))
    assert {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()} == before


def test_a_generated_file_that_became_a_link_is_replaced_and_its_target_kept(shop: Any) -> None:
    shop.write(shop.plan(shop.llm()))
    outside = shop.folder / "outside.txt"
    outside.write_text("precious")
    config = shop.repo / "qwen-7b_engine/config.pbtxt"
    config.unlink()
    config.symlink_to(outside)
    shop.write(shop.plan(shop.llm()))
    assert not config.is_symlink()
    assert outside.read_text() == "precious"


@pytest.mark.parametrize("name", ["../outside", "/etc", "..", "a/b"])
def test_a_manifest_that_names_folders_outside_is_refused(shop: Any, name: str) -> None:
    shop.write(shop.plan(shop.llm("a")))
    path = shop.repo / "trtbuild.json"
    manifest = json.loads(path.read_text())
    manifest["models"]["b"] = {"kind": "llm", "engine_key": None, "folders": {name: {}}}
    path.write_text(json.dumps(manifest))
    with pytest.raises(RepositoryError, match="damaged"):
        remove_model(shop.repo, "b", plan=shop.plan(shop.llm("a")), spec=shop.spec(shop.llm("a")))


def test_a_user_edit_is_seen_and_written_over(shop: Any) -> None:
    shop.write(shop.plan(shop.llm()))
    config = shop.repo / "qwen-7b_engine/config.pbtxt"
    good = config.read_bytes()
    config.write_bytes(good.replace(b"max_batch_size: 32", b"max_batch_size: 33"))
    (shop.repo / "qwen-7b/1/model.py").unlink()
    assert verify_manifest(shop.repo) == [
        "qwen-7b/1/model.py is missing",
        "qwen-7b_engine/config.pbtxt was changed after it was written",
    ]
    shop.write(shop.plan(shop.llm()))
    assert config.read_bytes() == good
    assert verify_manifest(shop.repo) == []


def test_engines_of_a_build_outlive_a_new_configuration(shop: Any) -> None:
    shop.write(shop.plan(shop.llm()))
    engine = built(shop)
    before = engine.stat()
    report = shop.write(shop.plan(shop.llm(kv_tokens=1024, max_queue_size=9)))
    assert set(report.kept_products) == {
        "qwen-7b_engine/1/rank0.engine",
        "qwen-7b_engine/1/config.json",
        "qwen-7b/1/tokenizer/tokenizer.json",
    }
    assert (engine.stat().st_ino, engine.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert (shop.repo / "qwen-7b/1/tokenizer/tokenizer.json").is_file()
    assert verify_manifest(shop.repo) == []


def test_engines_of_another_plan_are_set_aside_and_said(shop: Any) -> None:
    shop.write(shop.plan(shop.llm()))
    built(shop)
    report = shop.write(shop.plan(shop.llm(max_num_tokens=4096)))
    place = report.moved_engines["qwen-7b_engine"]
    assert place.parent == shop.folder / "model_repo.engines"
    assert (place / "1/rank0.engine").read_bytes() == b"compiled for hours"
    assert (place / "1/config.json").is_file()
    assert [path.name for path in (shop.repo / "qwen-7b_engine/1").iterdir()] == [".gitkeep"]
    # The tokenizer does not depend on the engine's shapes.
    assert (shop.repo / "qwen-7b/1/tokenizer/tokenizer.json").is_file()


def test_engines_come_back_with_their_plan(shop: Any) -> None:
    shop.write(shop.plan(shop.llm()))
    built(shop)
    shop.write(shop.plan(shop.llm(max_num_tokens=4096)))
    report = shop.write(shop.plan(shop.llm()))
    assert (shop.repo / "qwen-7b_engine/1/rank0.engine").read_bytes() == b"compiled for hours"
    assert "qwen-7b_engine/1/rank0.engine" in report.kept_products


def test_engines_follow_a_change_of_names(shop: Any) -> None:
    shop.write(shop.plan(shop.llm()))
    built(shop)
    report = shop.write(shop.plan(shop.llm()), names="classic")
    assert (shop.repo / "tensorrt_llm/1/rank0.engine").read_bytes() == b"compiled for hours"
    assert report.moved_engines == {}
    assert not (shop.repo / "qwen-7b_engine").exists()


def test_engines_are_kept_when_the_repository_becomes_a_local_one(shop: Any) -> None:
    shop.write(shop.plan(shop.llm()))
    built(shop)
    shop.write(shop.plan(shop.llm(), target=Target.LOCAL))
    names = {path.name for path in (shop.repo / "qwen-7b_engine/1").iterdir()}
    assert names == {"config.json", "model.gguf"}
    report = shop.write(shop.plan(shop.llm()))
    assert (shop.repo / "qwen-7b_engine/1/rank0.engine").read_bytes() == b"compiled for hours"
    assert "qwen-7b_engine/1/rank0.engine" in report.kept_products
    assert not (shop.repo / "qwen-7b_engine/1/model.gguf").exists()


def test_an_engine_that_was_built_again_replaces_the_one_that_was_set_aside(shop: Any) -> None:
    shop.write(shop.plan(shop.llm()))
    engine = built(shop)
    shop.write(shop.plan(shop.llm(max_num_tokens=4096)))
    shop.write(shop.plan(shop.llm()))
    engine.unlink()
    engine.write_bytes(b"compiled again, from newer weights")
    report = shop.write(shop.plan(shop.llm(max_num_tokens=4096)))
    place = report.moved_engines["qwen-7b_engine"]
    assert (place / "1/rank0.engine").read_bytes() == b"compiled again, from newer weights"


def test_python_caches_are_not_carried_along(shop: Any) -> None:
    shop.write(shop.plan(shop.llm()))
    cache = shop.repo / "qwen-7b/1/__pycache__"
    cache.mkdir()
    (cache / "model.cpython-312.pyc").write_bytes(b"old code")
    shop.write(shop.plan(shop.llm(max_output_tokens=9)))
    assert not cache.exists()


def test_files_that_are_no_longer_generated_go_and_the_users_stay(
    shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trtbuild.repository import llm as llm_module

    shop.write(shop.plan(shop.llm()))
    (shop.repo / "qwen-7b/1/notes.txt").write_text("of the user")
    monkeypatch.setattr(llm_module, "text_package", lambda: {"other.py": b"# renamed\n"})
    shop.write(shop.plan(shop.llm()))
    assert not (shop.repo / "qwen-7b/1/tritontext/__init__.py").exists()
    assert (shop.repo / "qwen-7b/1/tritontext/other.py").is_file()
    assert (shop.repo / "qwen-7b/1/notes.txt").read_text() == "of the user"


def test_classic_names_give_nvidias_models_and_two_fronts(shop: Any) -> None:
    shop.write(shop.plan(shop.llm()), names="classic")
    folders = {path.name for path in shop.repo.iterdir() if path.is_dir()}
    assert folders == {
        "qwen-7b", "tensorrt_llm_bls", "preprocessing", "tensorrt_llm", "postprocessing", "ensemble",
    }  # fmt: skip
    bls = (shop.repo / "tensorrt_llm_bls/config.pbtxt").read_text()
    assert 'value { string_value: "tensorrt_llm" }' in bls
    # The second front reads the first one's tokenizer, which a build brings once.
    assert 'value { string_value: "../../qwen-7b/1/tokenizer" }' in bls
    assert '"tensorrt_llm/1"' in (shop.repo / "tensorrt_llm/config.pbtxt").read_text()


def test_the_reference_deployment_is_written_only_when_asked_for(shop: Any) -> None:
    plan = shop.plan(shop.llm())
    shop.write(plan, allow_reference=True)
    with pytest.raises(RepositoryError, match="reference deployment") as caught:
        shop.write(plan)
    assert "--output" in caught.value.remedies[0]
    with pytest.raises(RepositoryError, match="reference deployment"):
        remove_model(shop.repo, "qwen-7b", plan=plan, spec=shop.spec(shop.llm()))
    shop.write(plan, allow_reference=True)


def test_a_reference_is_checked_file_by_file(shop: Any) -> None:
    plan = shop.plan(shop.llm())
    spec = shop.spec(shop.llm())
    shop.write(plan, allow_reference=True)
    assert check_reference(shop.repo, plan, spec) == []
    (shop.repo / "qwen-7b/config.pbtxt").write_text("edited")
    (shop.repo / "README.md").unlink()
    (shop.repo / "extra.txt").write_text("")
    assert check_reference(shop.repo, plan, spec) == [
        "README.md is missing",
        "extra.txt is not generated",
        "qwen-7b/config.pbtxt differs from what trtbuild writes",
    ]


def test_what_the_local_target_lacks_is_an_error_before_anything_is_written(shop: Any) -> None:
    plan = shop.plan(shop.llm(), target=Target.LOCAL)
    with pytest.raises(RepositoryError, match="tokenizer of qwen-7b"):
        shop.write(plan, text_assets={}, weights={"qwen-7b": shop.gguf})
    with pytest.raises(RepositoryError, match="needs weights for qwen-7b"):
        shop.write(plan, text_assets={"qwen-7b": shop.tokenizer}, weights={})
    with pytest.raises(RepositoryError, match="neither a GGUF file nor an OpenVINO IR"):
        shop.write(plan, text_assets={"qwen-7b": shop.tokenizer}, weights={"qwen-7b": shop.onnx})
    with pytest.raises(RepositoryError, match="ONNX file of ocr_det"):
        shop.write(shop.plan(shop.ocr(), target=Target.LOCAL), text_assets={}, weights={})
    assert not shop.repo.exists()


def test_the_llm_api_gets_a_python_model_with_its_arguments(shop: Any) -> None:
    shop.write(shop.plan(shop.llm(quant="fp16"), target=Target.LLMAPI))
    engine = shop.repo / "qwen-7b_engine"
    config = text_format.Parse((engine / "config.pbtxt").read_text(), ModelConfig())
    assert (config.backend, config.max_batch_size) == ("python", 32)
    assert config.model_transaction_policy.decoupled
    arguments = yaml.safe_load((engine / "1/model.yaml").read_text())
    assert arguments["model"] == "checkpoint"
    assert arguments["kv_cache_config"]["max_gpu_total_bytes"] == 57_344 * 160_000


def test_a_container_without_the_llm_api_is_refused(shop: Any) -> None:
    with pytest.raises(RepositoryError, match=r"25\.08 \(TensorRT-LLM 0\.21\.0\) has no target llmapi"):
        shop.write(shop.plan(shop.llm(quant="fp16"), target=Target.LLMAPI, container="25.08"))


def test_the_llm_api_has_no_int8_kv(shop: Any) -> None:
    with pytest.raises(RepositoryError, match="no 8-bit integer KV"):
        shop.write(shop.plan(shop.llm(quant="fp16", kv_dtype="int8"), target=Target.LLMAPI))


def test_another_writer_at_work_is_an_error(shop: Any) -> None:
    shop.repo.mkdir()
    with exclusive(shop.repo), pytest.raises(RepositoryError, match="another trtbuild"):
        shop.write(shop.plan(shop.llm()))
    assert shop.write(shop.plan(shop.llm())).written


def test_plan_and_spec_lie_beside_the_models_and_are_read_back(shop: Any) -> None:
    from trtbuild.spec import DeploymentSpec

    plan = shop.plan(shop.llm(), shop.ocr())
    shop.write(plan)
    assert Plan.model_validate_json((shop.repo / "plan.json").read_text()) == plan
    spec = DeploymentSpec.model_validate(yaml.safe_load((shop.repo / "deployment.yaml").read_text()))
    assert spec == shop.spec(shop.llm(), shop.ocr())


def test_weights_are_copied_where_no_link_can_be_made(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", no_links)
    plan = shop.plan(shop.llm(), target=Target.LOCAL)
    shop.write(plan)
    copy = shop.repo / "qwen-7b_engine/1/model.gguf"
    assert copy.read_bytes() == shop.gguf.read_bytes()
    assert not copy.samefile(shop.gguf)
    assert shop.write(plan).written == ()
