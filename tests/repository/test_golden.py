"""Golden configurations, and in what the two targets differ."""

from __future__ import annotations

from typing import Any

from google.protobuf import text_format
from tests.support import golden
from tritonclient.grpc.model_config_pb2 import ModelConfig

from trtbuild.repository.differences import LOCAL_DIFFERENCES
from trtbuild.spec import Target


def test_configurations_are_those_in_git() -> None:
    assert golden.stale() == [], "run python -m tests.support.golden --write and look at the difference"


def test_golden_files_are_in_the_writers_own_form() -> None:
    for path in golden.FOLDER.rglob("*.pbtxt"):
        text = path.read_text()
        config = text_format.Parse(text, ModelConfig())
        assert config.name == path.stem
        assert not any(line != line.rstrip() for line in text.splitlines())
        assert text.endswith("\n")
        assert not text.endswith("\n\n")


def flat(config: Any) -> dict[str, str]:
    """Field → value, with the parameters one by one."""
    parts = {f"parameters.{key}": value.string_value for key, value in config.parameters.items()}
    parts |= {f"instance_group.kind[{i}]": str(group.kind) for i, group in enumerate(config.instance_group)}
    rest = ModelConfig()
    rest.CopyFrom(config)
    if inflight := rest.ensemble_scheduling.max_inflight_requests:
        parts["ensemble_scheduling.max_inflight_requests"] = str(inflight)
        rest.ensemble_scheduling.max_inflight_requests = 0
    rest.ClearField("parameters")
    for group in rest.instance_group:
        group.ClearField("kind")
        if group.HasField("rate_limiter"):
            parts["instance_group.rate_limiter"] = str(group.rate_limiter)
            group.ClearField("rate_limiter")
    parts["rest"] = text_format.MessageToString(rest)
    return parts


def test_the_two_targets_differ_in_the_listed_places_only(shop: Any) -> None:
    models = (shop.llm("a"), shop.ocr(), shop.detector("ocr_free"))
    local_models = (
        shop.llm("a", kv_tokens=8192, kv_free_fraction=0.5),
        shop.ocr(),
        shop.detector("ocr_free"),
    )
    shop.write(shop.plan(*models), output=shop.folder / "engine")
    shop.write(shop.plan(*local_models, target=Target.LOCAL), output=shop.folder / "local")
    configs, files = {}, {}
    for target in ("engine", "local"):
        root = shop.folder / target
        configs[target] = {
            path.parent.name: flat(text_format.Parse(path.read_text(), ModelConfig()))
            for path in root.rglob("config.pbtxt")
        }
        files[target] = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    found = set()
    for name, engine in configs["engine"].items():
        local = configs["local"][name]
        where = "<network>" if name.startswith("ocr_") else name.replace("a_", "<model>_")
        where = {"ocr_free": "<pipeline>", "a": "<model>"}.get(name, where)
        for field in engine.keys() | local.keys():
            if engine.get(field) != local.get(field):
                found.add((f"{where}/config.pbtxt", field.removesuffix("[0]")))
    for path in files["engine"] ^ files["local"]:
        if "/" not in path:
            found.add(("/", "files"))
        elif path.startswith("ocr_"):
            found.add(("<network>/1", "files"))
        else:
            found.add((path.rsplit("/", 1)[0].replace("a_", "<model>_").replace("a/", "<model>/"), "files"))
    assert found == {(entry.where, entry.what) for entry in LOCAL_DIFFERENCES}
