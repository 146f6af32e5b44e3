"""Vision networks on a GPU host: their configurations, plan files, and the script that compiles them."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from tests.support.plans import detector_plan, llm_plan, ocr_plan, plan_of
from tritonclient.grpc.model_config_pb2 import ModelConfig

from trtbuild.build.trtexec import plan_file, trtexec_argv
from trtbuild.catalog.versions import find_container
from trtbuild.plan.model import VisionPlan
from trtbuild.spec import Task


def changed(**network: Any) -> VisionPlan:
    plan = detector_plan()
    return plan.model_copy(update={"networks": (plan.networks[0].model_copy(update=network),)})


def config(shop: Any, name: str) -> Any:
    return text_format.Parse((shop.repo / name / "config.pbtxt").read_text(), ModelConfig())


def test_the_profile_is_what_the_configuration_says(shop: Any) -> None:
    plan = changed(runtime="tensorrt", precision="fp16")
    shop.write(shop.plan(shop.llm(), plan))
    written = config(shop, "detector_network")
    assert (written.backend, written.default_model_filename) == ("tensorrt", "model.plan")
    argv = trtexec_argv(plan.networks[0], onnx="model/model.onnx", product="p")
    shapes = dict(re.findall(r"--(min|opt|max)Shapes=pixels:(\S+)", " ".join(argv)))
    (tensor,) = written.input
    for word, batch in (("min", 1), ("opt", max(written.dynamic_batching.preferred_batch_size)),
                        ("max", written.max_batch_size)):  # fmt: skip
        assert shapes[word] == "x".join(map(str, [batch, *tensor.dims]))
    assert "--fp16" in argv
    assert written.optimization.priority == written.optimization.PRIORITY_MAX


def test_what_waits_is_bounded_where_servers_can(shop: Any) -> None:
    shop.write(shop.plan(detector_plan(), container="25.12"))
    assert config(shop, "detector").ensemble_scheduling.max_inflight_requests == 16  # 2 × batch of 8
    shop.write(shop.plan(detector_plan(), container="25.10"))
    assert config(shop, "detector").ensemble_scheduling.max_inflight_requests == 0


def test_onnxruntime_in_16_bits_goes_through_tensorrt(shop: Any) -> None:
    shop.write(shop.plan(changed(precision="fp16")))
    (accelerator,) = config(
        shop, "detector_network"
    ).optimization.execution_accelerators.gpu_execution_accelerator
    assert (accelerator.name, accelerator.parameters["precision_mode"]) == ("tensorrt", "FP16")
    assert accelerator.parameters["max_workspace_size_bytes"] == "200000000"


def test_the_readme_says_what_each_model_answers_and_how_it_is_called(shop: Any) -> None:
    shop.write(shop.plan(ocr_plan(), detector_plan()))
    text = (shop.repo / "README.md").read_text()
    assert "| `ocr` | `image`: an encoded picture | `text`, `score`, `box` of each line |" in text
    outputs = "`box`, `score`, `class_id`, `label`, `count`, `picture_size`"
    assert f"| `detector` | `image`: an encoded picture | {outputs} |" in text
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    compile(code, "README.md", "exec")
    assert 'client.ocr("ocr", "picture.jpg")' in code
    assert 'client.detect("detector", "picture.jpg")' in code
    raw = detector_plan().model_copy(update={"task": Task.RAW})
    shop.write(shop.plan(ocr_plan(), raw))
    (code,) = re.findall(r"```python\n(.*?)```", (shop.repo / "README.md").read_text(), re.DOTALL)
    compile(code, "README.md", "exec")
    assert 'client.infer("detector"' in code


def test_another_tensorrt_is_another_key() -> None:
    network = changed(runtime="tensorrt").networks[0]
    keys = {
        plan_file(network, find_container(release), sm, onnx="m").key
        for release, sm in (("26.07", "8.9"), ("26.02", "8.9"), ("26.07", "9.0"))
    }
    assert len(keys) == 3


def test_vision_models_share_the_gpu_by_the_rate_limiter(shop: Any) -> None:
    shop.write(shop.plan(ocr_plan(), changed()))
    assert "--rate-limit=execution_count" in (shop.repo / "launch.sh").read_text()
    (group,) = config(shop, "detector_network").instance_group
    assert [resource.name for resource in group.rate_limiter.resources] == ["vision"]


def test_the_image_gets_the_backends_that_are_used(shop: Any) -> None:
    shop.write(shop.plan(ocr_plan(), changed(runtime="tensorrt")))
    text = (shop.repo / "Dockerfile").read_text()
    assert re.findall(r"COPY --from=vision \S+/(\w+) ", text) == ["onnxruntime", "tensorrt"]


@pytest.mark.parametrize("llms", [(), (llm_plan(),)])
def test_the_script_compiles_once_and_again_when_the_graph_changes(
    shop: Any, llms: Any, tmp_path: Path
) -> None:
    shop.write(plan_of(*llms, changed(runtime="tensorrt", precision="int8")))
    script = shop.repo / "build_engines.sh"
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
    printed = subprocess.run([script, "--print"], capture_output=True, text=True, check=True).stdout
    assert "--maxShapes=pixels:8x640x640x3 --int8 --fp16" in printed
    if llms:
        return
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "nvidia-smi").write_text("#!/bin/sh\necho 8.9\n")
    (tools / "trtexec").write_text(
        '#!/bin/sh\nfor word in "$@"; do case $word in --saveEngine=*) echo plan >"${word#*=}";; esac; done\n'
        'echo "$@" >>"$(dirname "$0")/calls"\n'
    )
    for tool in tools.iterdir():
        tool.chmod(0o755)
    graph = shop.repo / "detector_network/1/model.onnx"
    graph.write_bytes(b"one graph")
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}

    def build() -> int:
        subprocess.run([script, "--here"], env=environment, check=True, capture_output=True)
        return len((tools / "calls").read_text().splitlines())

    assert build() == 1
    assert (shop.repo / "detector_network/1/model.plan").read_text() == "plan\n"
    assert build() == 1
    graph.write_bytes(b"another graph")
    assert build() == 2


def test_a_plan_file_goes_when_its_network_changes(shop: Any) -> None:
    plan = shop.repo / "detector_network/1/model.plan"
    shop.write(plan_of(changed(runtime="tensorrt")))
    plan.write_text("compiled")
    shop.write(plan_of(changed(runtime="tensorrt"), ocr_plan()))
    assert plan.read_text() == "compiled"
    shop.write(plan_of(changed(runtime="tensorrt", preferred_batch_sizes=(8,)), ocr_plan()))
    assert not plan.exists()
