"""Public reports that a file can show: the finding's id, file and line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.support.lint_repo import PYTHON_MODEL, found, line_of, nvidia, only, parameter, write
from tests.support.tiny_onnx import FLOAT, node, onnx_bytes

ENGINE = Path("tensorrt_llm/config.pbtxt")


def change(repo: Path, old: str, new: str, model: str = "tensorrt_llm") -> int:
    """Replaces the first ``old`` of a model's config; returns the line on which it stood."""
    path = repo / model / "config.pbtxt"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return text[: text.index(old)].count("\n") + 1


def value_line(repo: Path, key: str, model: str = "tensorrt_llm") -> int:
    """The line of a parameter's value: two below its key."""
    return line_of(repo / model / "config.pbtxt", f'key: "{key}"') + 2


def engine(repo: Path, *, ranks: int = 1, version: str = "0.19.0", tp: int = 1, **build: object) -> Path:
    """An engine folder inside the repository, which the config names."""
    plugin = {"use_paged_context_fmha": build.pop("fmha", True), "tokens_per_block": 32}
    if build.pop("padding", False):
        plugin["remove_input_padding"] = False
    quantization = {"kv_cache_quant_algo": build.pop("kv", None)}
    config = {
        "version": version,
        "pretrained_config": {
            "architecture": build.pop("architecture", "LlamaForCausalLM"),
            "quantization": quantization,
            "mapping": {"world_size": tp, "tp_size": tp, "pp_size": 1},
        },
        "build_config": {
            "max_batch_size": 8,
            "max_seq_len": 4096,
            "max_beam_width": 1,
            "plugin_config": plugin,
            **build,
        },
    }
    folder = repo / "tensorrt_llm" / "1"
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    for rank in range(ranks):
        (folder / f"rank{rank}.engine").write_bytes(b"x")
    return folder / "config.json"


HERE = {"gpt_model_path": "/models/tensorrt_llm/1"}


@pytest.mark.parametrize(
    ("model", "key", "filled", "placeholder"),
    [
        # A1
        ("tensorrt_llm", "input.data_type", "TYPE_FP16", "${encoder_input_features_data_type}"),
        ("tensorrt_llm_bls", "input.data_type", "TYPE_FP32", "${logits_datatype}"),
        # A2, A3
        ("tensorrt_llm", "max_batch_size", "8", "${triton_max_batch_size}"),
        ("ensemble", "max_batch_size", "8", "${triton_max_batch_size}"),
        ("preprocessing", "instance_group.count", "2", "${preprocessing_instance_count}"),
        ("postprocessing", "instance_group.count", "1", "${postprocessing_instance_count}"),
        ("tensorrt_llm", "model_transaction_policy.decoupled", "true", "${decoupled_mode}"),
    ],
)
def test_placeholders_in_typed_fields(tmp_path, model, key, filled, placeholder):
    repo = nvidia(tmp_path, "0.19.0")
    name = key.rpartition(".")[2]
    line = change(repo, f"{name}: {filled}", f"{name}: {placeholder}", model)
    finding = next(f for f in found_all(repo) if f.rule == "unfilled-placeholder")
    assert (finding.severity, finding.place.file, finding.place.line) == (
        "error",
        f"{model}/config.pbtxt",
        line,
    )
    assert key in finding.found
    assert placeholder in finding.found


def found_all(repo: Path, **options: str | None):
    from trtbuild.lint.run import lint

    return lint(repo, **options)


def test_placeholders_in_strings_that_may_be_left_are_one_remark_a_file(tmp_path):
    repo = nvidia(
        tmp_path,
        "0.19.0",
        values={"max_beam_width": "${max_beam_width}", "decoding_mode": "${decoding_mode}"},
    )
    finding = only(repo)
    assert (finding.rule, finding.severity) == ("unfilled-placeholder", "info")
    assert finding.place.line == value_line(repo, "decoding_mode")  # the first of the two
    assert "decoding_mode, max_beam_width" in finding.found


@pytest.mark.parametrize("model", ["tensorrt_llm", "tensorrt_llm_bls", "preprocessing", "postprocessing"])
def test_of_a_placeholder_nothing_else_is_said(tmp_path, model):
    """Each typed field of a filled repository in turn, in the container that it is for."""
    repo = nvidia(tmp_path, "1.1.0")
    path = repo / model / "config.pbtxt"
    text, tried = path.read_text(), set()
    for match in re.finditer(r"(\w+) ?: \[? ?([A-Z_0-9]+|-?\d+|true)", text):
        if match[1] not in tried:
            tried.add(match[1])
            path.write_text(text[: match.start(2)] + "${x}" + text[match.end(2) :])
            told = {rule for rule, _, _ in found(repo, container="25.12")} - {"container-cve"}
            assert told == {"unfilled-placeholder"}, match[1]
    assert {"max_batch_size", "data_type", "dims", "count", "kind"} <= tried


def test_a_placeholder_is_one_finding_a_file(tmp_path):
    repo = nvidia(tmp_path, "0.19.0", decoupled="${decoupled_mode}")
    path = repo / ENGINE
    path.write_text(path.read_text().replace("TYPE_FP32", "${logits_datatype}"))
    lines = [n for n, text in enumerate(path.read_text().splitlines(), 1) if "${logits_datatype}" in text]
    findings = [item for item in found_all(repo) if item.place.file == str(ENGINE)]
    assert [(item.rule, item.severity) for item in findings] == [("unfilled-placeholder", "error")] * 2
    (told,) = (item for item in findings if "${logits_datatype}" in item.found)
    assert told.place.line == lines[0]
    assert told.found.endswith(f"also on lines {', '.join(map(str, lines[1:]))}")


def test_a_template_of_a_newer_version_is_told_by_its_tensors(tmp_path):
    """A17: tutorial and container disagree."""
    repo = nvidia(tmp_path, "0.19.0")
    rows = {(rule, file): line for rule, file, line in found(repo, trtllm="1.0.0")}
    assert rows["tensor-version", str(ENGINE)] in (
        line_of(repo / ENGINE, 'name: "min_length"'), line_of(repo / ENGINE, 'name: "random_seed"'),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("", "is empty"),
        ("{", "is not JSON"),
        ('{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}', "Hugging Face"),
        ('{"builder_config": {}, "plugin_config": {}}', "builder_config"),
        ('{"architecture": "LlamaForCausalLM"}', "checkpoint"),
    ],
)
def test_a_folder_that_is_no_engine(tmp_path, content, part):
    """A5, A6."""
    repo = nvidia(tmp_path, "0.19.0", values=HERE)
    (repo / "tensorrt_llm" / "1" / "config.json").write_text(content)
    finding = only(repo)
    assert (finding.rule, finding.place.file) == ("engine-files", "tensorrt_llm/1/config.json")
    assert part in finding.found


def test_gpt_model_path_points_at_tritons_empty_folder(tmp_path):
    """A5."""
    repo = nvidia(tmp_path, "0.19.0", values=HERE)
    finding = only(repo)
    assert (finding.rule, finding.place.line) == ("engine-files", value_line(repo, "gpt_model_path"))


def test_ranks_are_counted(tmp_path):
    """A5: rank*.engine == tp * pp."""
    repo = nvidia(tmp_path, "0.19.0", values={**HERE, "gpu_device_ids": "0,1"})
    engine(repo, ranks=1, tp=2)
    finding = only(repo)
    assert (finding.rule, finding.place.line) == ("engine-files", value_line(repo, "gpt_model_path"))
    assert "2 ranks" in finding.found
    engine(repo, ranks=2, tp=2)
    assert found(repo) == []


def test_an_engine_of_another_version_than_the_container(tmp_path):
    """A6, C1 to C4."""
    repo = nvidia(tmp_path, "0.19.0", values=HERE)
    path = engine(repo, version="0.12.0.dev2024080600")
    (finding,) = (f for f in found_all(repo, container="25.10") if f.rule == "engine-version")
    assert "the engine of tensorrt_llm" in finding.found
    assert (finding.place.file, finding.place.line) == (
        "tensorrt_llm/1/config.json",
        line_of(path, '"version"'),
    )
    assert "container 24.08" in finding.remedy


PARAMETERS = [
    ("A8", "kv_cache_free_gpu_mem_fraction", "0,5", "number-value", "0.5"),
    ("A8", "kv_cache_free_gpu_mem_fraction", "1.0", "number-value", None),
    ("A8", "max_tokens_in_paged_kv_cache", "20k", "number-value", None),
    ("A8", "max_tokens_in_paged_kv_cache", " 4096", "number-value", "4096"),
    ("A8", "enable_kv_cache_reuse", "yes", "bool-value", "true"),
    ("A8", "enable_kv_cache_reuse", "True ", "bool-value", "true"),
    ("A8", "enable_chunked_context", "maybe", "bool-value", None),
    ("A8", "batch_scheduler_policy", "max_utilisation", "choice-value", None),
    ("A8", "gpt_model_type", "Inflight_Fused_Batching", "choice-value", "inflight_fused_batching"),
    (
        "A4",
        "gpu_device_ids",
        r"0\\\\,1",
        "device-groups",
        None,
    ),  # escaped once too often for fill_template.py
    ("A4", "gpt_model_path", "", "missing-parameter", None),  # s3://bucket/x, cut at its colon
    ("G5", "gpu_device_ids", "0;1", "device-groups", None),
    ("G5", "gpu_device_ids", "0:1", "device-groups", None),
    ("G5", "gpu_device_ids", "0,0", "device-groups", None),
    ("A8", "decoding_mode", "lookahead", "contradictory-parameters", None),
    ("A8", "guided_decoding_backend", "xgrammar", "contradictory-parameters", None),
    ("A17", "gpt_model_path", "/home/me/engines/llama", "local-path", None),
]


@pytest.mark.parametrize(("report", "key", "value", "rule", "fixed"), PARAMETERS)
def test_values_that_the_backend_does_not_read_as_written(tmp_path, report, key, value, rule, fixed):
    repo = nvidia(tmp_path, "0.19.0", values={key: value})
    (finding,) = (item for item in found_all(repo) if item.place.file == str(ENGINE))
    assert finding.rule == rule
    assert finding.place.line == value_line(repo, key)
    assert repr(value) in finding.found or value in finding.found
    assert (finding.edit.new if finding.edit else None) == fixed


def test_one_bls_instance_before_many_places(tmp_path):
    """A10, A11."""
    repo = nvidia(tmp_path, "0.19.0", bls=1)
    finding = only(repo)
    path = repo / "tensorrt_llm_bls" / "config.pbtxt"
    assert (finding.rule, finding.place.file) == ("bls-instances", "tensorrt_llm_bls/config.pbtxt")
    assert finding.place.line == line_of(path, "count: 1")


def test_two_engines_share_what_is_free(tmp_path):
    """B1, B2, B4: two models, or two instances on one GPU, without a cap in tokens."""
    repo = nvidia(tmp_path, "0.19.0", values={"max_tokens_in_paged_kv_cache": ""})
    assert found(repo) == []
    text = (repo / ENGINE).read_text()
    write(repo, "other", text.replace('name: "tensorrt_llm"', 'name: "other"', 1))
    assert {(rule, file) for rule, file, _ in found(repo)} == {
        ("kv-fraction-shared", "tensorrt_llm/config.pbtxt"), ("kv-fraction-shared", "other/config.pbtxt"),
    }  # fmt: skip


def test_a_pool_that_holds_no_whole_sequence(tmp_path):
    """B7: 91456 tokens of pool, and an engine for 131072."""
    repo = nvidia(tmp_path, "0.19.0", values={**HERE, "max_tokens_in_paged_kv_cache": "91456"})
    engine(repo, max_seq_len=131_072)
    finding = only(repo)
    assert (finding.rule, finding.place.line) == (
        "engine-limits",
        value_line(repo, "max_tokens_in_paged_kv_cache"),
    )


def test_a_front_that_promises_more_than_its_engine_takes(tmp_path):
    """A14: a prompt of 5056 tokens before an engine for 4096 in all."""
    repo = nvidia(tmp_path, "0.19.0", values=HERE)
    engine(repo)
    path = write(
        repo,
        "front",
        'backend: "python"\n' + parameter("engine_model", "tensorrt_llm") + parameter("max_seq_len", "5056"),
        {"1/model.py": PYTHON_MODEL},
    )
    assert found(repo) == [("engine-limits", "front/config.pbtxt", line_of(path, '"5056"'))]


@pytest.mark.parametrize(
    ("algo", "kv", "gpu", "key"),
    [
        ("FP8", None, "a100-80g", "quant_algo"),  # H14: FP8 begins with SM 8.9
        ("NVFP4", None, "h100", "quant_algo"),
        ("W4A16_AWQ", None, "b200", "quant_algo"),
        ("W4A16_AWQ", "FP8", "h100", None),
        ("FP8", None, "l4", None),
        ("SOMETHING_NEW", None, "l4", None),
    ],
)
def test_formats_that_a_gpu_does_not_run(tmp_path, algo, kv, gpu, key):
    """H14, H15."""
    repo = nvidia(tmp_path, "0.19.0", values=HERE)
    path = engine(repo, kv=kv)
    config = json.loads(path.read_text())
    config["pretrained_config"]["quantization"]["quant_algo"] = algo
    path.write_text(json.dumps(config, indent=1))
    lines = [("engine-gpu", "tensorrt_llm/1/config.json", line_of(path, f'"{key}"'))] if key else []
    assert found(repo, gpu=gpu) == lines
    assert found(repo) == []


def test_an_onnx_model_grows_beside_the_llm(tmp_path):
    """B13."""
    repo = nvidia(tmp_path, "0.19.0")
    path = write(
        repo, "det", 'backend: "onnxruntime"\nmax_batch_size: 0\ninstance_group [ { kind: KIND_GPU } ]\n'
    )
    finding = only(repo)
    assert (finding.rule, finding.place.line) == ("gpu-arena", line_of(path, "KIND_GPU"))
    path.write_text(path.read_text() + parameter("gpu_mem_limit", "200000000"))
    assert found(repo) == []


def test_rate_limiter_at_the_wrong_level(tmp_path):
    """B14."""
    write(tmp_path, "m", 'backend: "python"\nrate_limiter { resources [ { name: "R" count: 1 } ] }\n')
    finding = only(tmp_path)
    assert (finding.rule, finding.place.line) == ("unknown-key", 2)
    assert "instance_group" in finding.remedy


def test_llm_api_models_on_one_gpu_share_what_is_free(tmp_path):
    """B3, G5: two instances on GPU 0 on purpose, and each takes 0.9 of what it finds."""
    text = 'backend: "python"\ninstance_group [ { count: 2 kind: KIND_CPU } ]\n' + parameter(
        "gpu_device_ids", "0;0"
    )
    yaml = "model: a/b\nkv_cache_config:\n  free_gpu_memory_fraction: 0.9\n"
    write(tmp_path, "tensorrt_llm", text, {"1/model.py": PYTHON_MODEL, "1/model.yaml": yaml})
    assert found(tmp_path) == [("kv-fraction-shared", "tensorrt_llm/1/model.yaml", 3)]
    write(tmp_path, "tensorrt_llm", text, {"1/model.yaml": yaml + "  max_gpu_total_bytes: 9000000000\n"})
    assert found(tmp_path) == []
    write(tmp_path, "tensorrt_llm", text.replace("0;0", "0"))
    assert found(tmp_path) == [("device-groups", "tensorrt_llm/config.pbtxt", 6)]


def test_vllm_instances_all_land_on_the_first_gpu(tmp_path):
    """G3."""
    text = 'backend: "vllm"\ninstance_group [ { count: 4 kind: %s } ]\n'
    write(
        tmp_path, "m", text % "KIND_MODEL", {"1/model.json": '{"model": "m", "gpu_memory_utilization": 0.5}'}
    )
    finding = only(tmp_path)
    assert (finding.rule, finding.place.file) == ("kv-fraction-shared", "m/1/model.json")
    assert "4 instances of one vLLM model on GPU 0 adds up to 2.00" in finding.found
    write(tmp_path, "m", text.replace("count: 4", "count: 1") % "KIND_GPU gpus: [ 0, 1, 2 ]")
    assert found(tmp_path) == []


def test_vllm_shares_are_of_the_whole_card(tmp_path):
    """B14."""
    args = '{"model": "m", "gpu_memory_utilization": 0.6}'
    for name in ("a", "b"):
        write(tmp_path, name, 'backend: "vllm"\n', {"1/model.json": args})
    finding = only(tmp_path)
    assert (finding.rule, finding.place.file) == ("kv-fraction-shared", "b/1/model.json")
    assert "1.20" in finding.found


def test_pre_and_post_processing_name_different_tokenizers(tmp_path):
    """C, D: the tokenizer of one model with the ids of another."""
    repo = nvidia(tmp_path, "0.19.0")
    line = change(repo, '"/models/llama"', '"/models/qwen"', "postprocessing")
    assert found(repo) == [("tokenizer-files", "postprocessing/config.pbtxt", line)]


def test_decoupled_in_two_of_three(tmp_path):
    """E2."""
    repo = nvidia(tmp_path, "0.19.0")
    line = change(repo, "decoupled: true", "decoupled: false", "tensorrt_llm_bls")
    assert found(repo) == [("decoupled-disagreement", "tensorrt_llm_bls/config.pbtxt", line)]


def test_llmapi_settings_against_the_config(tmp_path):
    """E3."""
    write(
        tmp_path,
        "tensorrt_llm",
        'backend: "python"\nmodel_transaction_policy {\n decoupled: true\n}\n',
        {
            "1/model.py": PYTHON_MODEL + "x = 1\n",
            "1/model.yaml": "model: a/b\ntriton_config:\n  max_batch_size: 4\n  decoupled: False\n",
        },
    )
    assert found(tmp_path) == [
        ("llmapi-config", "tensorrt_llm/1/model.yaml", 3),
        ("llmapi-config", "tensorrt_llm/config.pbtxt", 3),
    ]


def test_queue_timeouts_of_an_engine_never_act(tmp_path):
    """E10, E11."""
    repo = nvidia(tmp_path, "0.19.0")
    line = change(
        repo,
        "max_queue_size: 0",
        "max_queue_size: 1 default_timeout_microseconds: 1000 timeout_action: REJECT",
    )
    assert found(repo) == [("queue-stall", str(ENGINE), line), ("llm-queue-policy", str(ENGINE), line)]


def test_a_full_queue_of_a_step(tmp_path):
    """E12: fixed in 26.03."""
    repo = nvidia(tmp_path, "1.1.0")
    line = change(
        repo,
        "max_batch_size: 8",
        "max_batch_size: 8\ndynamic_batching { default_queue_policy { max_queue_size: 3 } }",
        "preprocessing",
    )
    assert ("step-queue", "preprocessing/config.pbtxt", line + 1) in found(repo, container="25.12")
    assert found(repo) == [("queue-stall", "preprocessing/config.pbtxt", line + 1)]


@pytest.mark.parametrize("key", ["enable_kv_cache_reuse", "enable_chunked_context"])
def test_reuse_without_paged_context_fmha(tmp_path, key):
    """F1."""
    repo = nvidia(tmp_path, "0.19.0", values={**HERE, key: "True"})
    engine(repo, fmha=False)
    assert found(repo) == [("engine-flags", str(ENGINE), value_line(repo, key))]


def test_reuse_with_an_int8_cache(tmp_path):
    """F3."""
    repo = nvidia(tmp_path, "0.19.0", values={**HERE, "enable_kv_cache_reuse": "True"})
    engine(repo, kv="INT8")
    assert found(repo) == [("engine-flags", str(ENGINE), value_line(repo, "enable_kv_cache_reuse"))]


def test_prompts_with_padding_and_in_flight_batching(tmp_path):
    """A16."""
    repo = nvidia(tmp_path, "0.19.0", values=HERE)
    path = engine(repo, padding=True)
    place = ("engine-flags", "tensorrt_llm/1/config.json", line_of(path, "remove_input_padding"))
    assert found(repo) == [place]
    config = repo / ENGINE
    config.write_text(config.read_text().replace("inflight_fused_batching", "V1"))
    assert place not in found(repo)


def test_a_disabled_cache_with_in_flight_batching(tmp_path):
    """F10."""
    repo = nvidia(tmp_path, "0.19.0", values=HERE)
    engine(repo, kv_cache_type="DISABLED")
    assert found(repo) == [("engine-flags", str(ENGINE), value_line(repo, "gpt_model_type"))]


def test_gpus_of_an_instance_group_are_ignored(tmp_path):
    """G2."""
    repo = nvidia(tmp_path, "0.19.0")
    line = change(repo, "kind : KIND_CPU", "kind : KIND_GPU gpus: [ 0, 1 ]")
    assert found(repo) == [("gpus-ignored", str(ENGINE), line)]


def test_fewer_groups_than_instances(tmp_path):
    """G5: "0,1" with count 2 is an error, "0,1;2,3" and "0;0" are not."""
    for value, expected in (("0,1", ["device-groups"]), ("0,1;2,3", []), ("0;0", [])):
        repo = nvidia(tmp_path / value.replace(";", "_"), "0.19.0", values={"gpu_device_ids": value})
        change(repo, "count: 1", "count: 2")
        assert [rule for rule, _, _ in found(repo)] == expected


def test_a_stray_folder_beside_the_versions(tmp_path):
    """G7."""
    write(
        tmp_path,
        "m",
        'backend: "python"\n',
        {"1/model.py": PYTHON_MODEL, ".ipynb_checkpoints/model.py": PYTHON_MODEL},
    )
    assert found(tmp_path) == [("version-name", "m/config.pbtxt", 0)]


@pytest.mark.parametrize(
    ("folder", "severity", "part"),
    [
        ("-1", "warning", "reads version -1"),
        (" 2", "error", "reads version 2"),
        ("2-old", "error", "looks for it in m/2"),
        ("01", "warning", "ignores it"),
        ("v3", "warning", "ignores it"),
    ],
)
def test_folders_that_only_look_like_a_version(tmp_path, folder, severity, part):
    """Core's VersionsToLoad skips leading zeros and reads the rest with std::stoll."""
    write(
        tmp_path, "m", 'backend: "python"\n', {"1/model.py": PYTHON_MODEL, f"{folder}/model.py": PYTHON_MODEL}
    )
    finding = only(tmp_path)
    assert (finding.rule, finding.severity) == ("version-name", severity)
    assert part in finding.why


@pytest.mark.parametrize(
    ("folder", "remedy"),
    [(None, "mkdir m/1"), ("warmup", "mkdir m/1"), ("v2", "mv -- m/v2 m/1"), ("-1", "mv -- m/-1 m/1")],
)
def test_a_missing_version_folder_is_made_or_named(tmp_path, folder, remedy):
    path = write(tmp_path, "m", 'backend: "identity"\n')
    (path.parent / "1").rmdir()
    if folder is not None:
        (path.parent / folder).mkdir()
    finding = only(tmp_path)
    assert (finding.rule, finding.remedy) == ("no-version", remedy)


def test_an_unfilled_queue_is_a_placeholder_and_nothing_else(tmp_path):
    repo = nvidia(tmp_path, "1.1.0")
    new = (
        "max_queue_size: ${max_queue_size} default_timeout_microseconds: ${timeout} "
        "allow_timeout_override: ${override}"
    )
    line = change(repo, "max_queue_size: 0", new)
    rows = found(repo, container="25.12")
    assert {row for row in rows if row[1:] == (str(ENGINE), line)} == {
        ("unfilled-placeholder", str(ENGINE), line)
    }


def test_an_old_name_that_is_still_looked_for_is_deprecated(tmp_path):
    repo = nvidia(tmp_path, "0.16.0")
    rows = [item for item in found_all(repo, container="25.05") if "kv_cache_reuse" in item.found]
    assert [(item.rule, item.severity) for item in rows] == [("tensor-version", "warning")]
    assert "return_perf_metrics" in rows[0].remedy


def test_an_fp8_cache_with_biases(tmp_path):
    """H11."""
    repo = nvidia(tmp_path, "0.19.0", values=HERE)
    path = engine(repo, kv="FP8", architecture="Qwen2ForCausalLM")
    assert found(repo) == [
        ("engine-flags", "tensorrt_llm/1/config.json", line_of(path, "kv_cache_quant_algo"))
    ]


def test_batch_in_dims_on_one_side_of_an_ensemble_only(tmp_path):
    """I3."""
    pair = (
        'input [ {{ name: "I" data_type: TYPE_FP32 dims: [ {0} ] }} ]\n'
        'output [ {{ name: "O" data_type: TYPE_FP32 dims: [ {0} ] }} ]\n'
    )
    write(
        tmp_path,
        "pre",
        'backend: "python"\nmax_batch_size: 0\n' + pair.format("3, 1280, 1280"),
        {"1/model.py": PYTHON_MODEL},
    )
    write(
        tmp_path,
        "net",
        'backend: "python"\nmax_batch_size: 0\n' + pair.format("1, 3, 1280, 1280"),
        {"1/model.py": PYTHON_MODEL},
    )
    path = write(
        tmp_path, "all",
        'platform: "ensemble"\ninput [ { name: "I" data_type: TYPE_FP32 dims: [ 3, 1280, 1280 ] } ]\n'
        'output [ { name: "O" data_type: TYPE_FP32 dims: [ 1, 3, 1280, 1280 ] } ]\n'
        'ensemble_scheduling { step [\n'
        '{ model_name: "pre" model_version: -1 input_map { key: "I" value: "I" }\n'
        'output_map { key: "O" value: "picture" } },\n'
        '{ model_name: "net" model_version: -1 input_map { key: "I" value: "picture" }\n'
        'output_map { key: "O" value: "O" } } ] }\n',
    )  # fmt: skip
    assert found(tmp_path) == [("ensemble-edge", "all/config.pbtxt", line_of(path, 'model_name: "net"'))]


def test_python_instances_against_shared_memory(tmp_path):
    """I7: 100 instances of 1 MiB in docker's 64."""
    write(
        tmp_path,
        "m",
        'backend: "python"\ninstance_group [ { count: 100 kind: KIND_CPU } ]\n',
        {"1/model.py": PYTHON_MODEL},
    )
    (tmp_path / "launch.sh").write_text("#!/bin/sh\ndocker run --shm-size 64m x\n")
    assert found(tmp_path) == [("shm-size", "launch.sh", 2)]
    (tmp_path / "launch.sh").write_text("#!/bin/sh\ndocker run x\n")
    assert found(tmp_path) == [("shm-size", "launch.sh", 2)]
    (tmp_path / "launch.sh").write_text("#!/bin/sh\ndocker run --shm-size=1g x\n")
    assert found(tmp_path) == []


def test_pictures_one_by_one_in_dali(tmp_path):
    """I10."""
    path = write(
        tmp_path,
        "d",
        'backend: "dali"\nmax_batch_size: 0\ninput [ { name: "I" data_type: TYPE_UINT8 dims: [ -1 ] } ]\n',
    )
    assert found(tmp_path) == [("picture-batch", "d/config.pbtxt", line_of(path, "max_batch_size"))]


def test_back_pressure_in_a_container_without_it(tmp_path):
    """I12."""
    repo = nvidia(tmp_path, "1.0.0")
    line = change(repo, "step [", "max_inflight_requests: 4\n  step [", "ensemble")
    assert ("in-flight-limit", "ensemble/config.pbtxt", line) in found(repo, container="25.10")
    assert found(repo) == []


def test_steps_behind_a_stream_have_one_instance(tmp_path):
    repo = nvidia(tmp_path, "0.19.0", post=4)
    path = repo / "postprocessing" / "config.pbtxt"
    assert found(repo) == [("ensemble-scramble", "postprocessing/config.pbtxt", line_of(path, "count: 4"))]


def test_keys_that_must_exist_from_a_version_on(tmp_path):
    repo = nvidia(tmp_path, "0.16.0")
    missing = {item.found for item in found_all(repo, container="25.10") if item.rule == "missing-parameter"}
    assert {
        "parameter tokenizer_dir is missing",
        "parameter xgrammar_tokenizer_info_path is missing",
    } <= missing
    assert found(repo) == []


def test_known_vulnerabilities_of_the_container(tmp_path):
    """K1, K2: fixed in 25.07."""
    write(tmp_path, "m", 'backend: "python"\n', {"1/model.py": PYTHON_MODEL})
    assert "CVE-2025-23319" in "".join(item.found for item in found_all(tmp_path, container="25.06"))
    assert "CVE-2025-23319" not in "".join(item.found for item in found_all(tmp_path, container="25.08"))


def test_url_fetch_remote_code_and_secrets(tmp_path):
    """K6, K8. The key is not repeated."""
    code = (
        "import requests\nclass TritonPythonModel:\n    def get(self, url):\n"
        "        # requests.get(url) was here\n        return requests.get(url, stream=True).raw\n"
        "    t = load(trust_remote_code=True)\n"
    )
    token = "hf_" + "aB3" * 12
    write(tmp_path, "m", 'backend: "python"\n' + parameter("hf_token", token), {"1/model.py": code})
    findings = found_all(tmp_path)
    assert [(item.rule, item.place.line) for item in findings] == [
        ("url-fetch", 5), ("remote-code", 6), ("secret", 5),
    ]  # fmt: skip
    assert token not in json.dumps([item.as_json() for item in findings])


def test_a_delay_before_an_llm(tmp_path):
    repo = nvidia(tmp_path, "0.19.0")
    line = change(repo, "max_queue_delay_microseconds: 0", "max_queue_delay_microseconds: 50000")
    assert found(repo) == [("llm-batch-delay", str(ENGINE), line)]


def test_engines_that_do_not_fit_together(tmp_path):
    """2 x 32 layers x 8 heads x 128 x 2 bytes = 131072 a token; x 180000 tokens = 22.0 GiB of an L4."""
    repo = nvidia(tmp_path, "0.19.0", values={**HERE, "max_tokens_in_paged_kv_cache": "180000"})
    path = engine(repo)
    config = json.loads(path.read_text())
    config["pretrained_config"] |= {"num_hidden_layers": 32, "num_key_value_heads": 8, "head_size": 128}
    path.write_text(json.dumps(config, indent=1))
    assert found(repo, gpu="h100") == []
    assert found(repo, gpu="l4") == []  # 22.0 of 22.5 GiB
    with (path.parent / "rank0.engine").open("wb") as file:
        file.truncate(4 << 30)
    finding = only(repo, gpu="l4")
    assert (finding.rule, finding.place.line) == (
        "memory-sum",
        value_line(repo, "max_tokens_in_paged_kv_cache"),
    )
    assert "tensorrt_llm 26.0 = 26.0 GiB" in finding.found


def test_a_config_in_the_version_folder(tmp_path):
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "config.pbtxt").write_text('backend: "onnxruntime"\n')
    finding = only(tmp_path)
    assert (finding.rule, finding.place.file) == ("no-config", "m")
    assert finding.remedy == "move 1/config.pbtxt one folder up"


def test_the_file_that_a_backend_loads_is_missing(tmp_path):
    path = write(tmp_path, "m", '# the network\nbackend: "onnxruntime"\n', {"1/net.onnx": "x"})
    assert found(tmp_path) == [("model-file", "m/config.pbtxt", 2)]
    assert "net.onnx" in only(tmp_path).found
    path.write_text(path.read_text() + 'default_model_filename: "net.onnx"\n')
    assert found(tmp_path) == []
    (tmp_path / "m" / "1" / "net.onnx").rename(tmp_path / "m" / "1" / "model.onnx")
    assert found(tmp_path) == [("model-file", "m/config.pbtxt", 2)]


def test_launch_lines_that_leave_bls_32_threads(tmp_path):
    """A10, I13, and the stalls of many streams."""
    repo = nvidia(tmp_path, "0.19.0")
    script = repo / "launch.sh"
    script.write_text("#!/bin/sh\n# as documented\nexec tritonserver --model-repository /models\n")
    assert found(repo) == [("bls-threads", "launch.sh", 3)]
    script.write_text(script.read_text().rstrip() + " --backend-config=python,thread-pool-size=256\n")
    assert found(repo) == []


@pytest.mark.parametrize(
    ("config", "files", "line", "part"),
    [
        (
            'platform: "ensemble"\nensemble_scheduling { }\nmodel_warmup [ { name: "w" } ]\n',
            {}, 3, "of an ensemble",
        ),
        (
            'backend: "python"\nparameters { key: "tensorrt_llm_model_name" value { string_value: "x" } }\n'
            'model_warmup [ { name: "w" } ]\n',
            {"1/model.py": PYTHON_MODEL}, 3, "calls other models",
        ),
        (
            'backend: "python"\nmax_batch_size: 4\nmodel_warmup [ { name: "w"\n batch_size: 8 } ]\n',
            {"1/model.py": PYTHON_MODEL}, 4, "batch_size 8 with max_batch_size 4",
        ),
        (
            'backend: "python"\ninput [ { name: "A" data_type: TYPE_FP32 dims: [ 1 ] } ]\n'
            'model_warmup [ { name: "w" batch_size: 1 inputs { key: "A"\n'
            'value { data_type: TYPE_FP32 dims: [ 1 ] zero_data: true } } inputs { key: "B"\n'
            'value { data_type: TYPE_FP32 dims: [ 1 ] zero_data: true } } } ]\n',
            {"1/model.py": PYTHON_MODEL}, 4, "'B', which is no input",
        ),
        (
            'backend: "python"\ninput [ { name: "A" data_type: TYPE_FP32 dims: [ 1 ] } ]\n'
            'model_warmup [ { name: "w" batch_size: 1 inputs { key: "A"\n'
            ' value { data_type: TYPE_FP32 dims: [ 1 ] input_data_file: "a.bin" } } } ]\n',
            {"1/model.py": PYTHON_MODEL, "a.bin": "x"}, 4, "warmup/a.bin is missing",
        ),
    ],
)  # fmt: skip
def test_warm_ups_that_cannot_work(tmp_path, config, files, line, part):
    write(tmp_path, "m", config, files)
    findings = [item for item in found_all(tmp_path) if item.rule == "warmup"]
    assert [(item.place.file, item.place.line) for item in findings] == [("m/config.pbtxt", line)]
    assert part in findings[0].found


def test_a_repository_for_another_container_than_is_said(tmp_path):
    from tests.support.plans import llm_plan, plan_of, spec_of

    from trtbuild.repository.writer import write_repository

    plan = plan_of(llm_plan(), container="26.07")
    write_repository(plan, spec_of(*plan.models), tmp_path / "repo", text_assets={}, weights={})
    (finding,) = (item for item in found_all(tmp_path / "repo", container="25.03") if item.rule == "stamp")
    place = (finding.place.file, finding.place.line)
    assert place == ("trtbuild.json", line_of(tmp_path / "repo" / "trtbuild.json", '"container"'))
    assert "1.2.1" in finding.found
    assert "--container 25.03" in finding.found
    assert "stamp" not in {rule for rule, _, _ in found(tmp_path / "repo", container="26.05")}


NET = """backend: "onnxruntime"
max_batch_size: 8
input [ { name: "x"
  data_type: TYPE_FP32
  dims: [ 3, 224, 224 ] } ]
output [ { name: "y"
  data_type: TYPE_FP32
  dims: [ 10 ] } ]
"""


@pytest.mark.parametrize(
    ("config", "dims", "line", "part"),
    [
        (NET, ["N", 3, 224, 224], 0, ""),
        (NET, ["N", 3, "H", "W"], 0, ""),
        (NET.replace("max_batch_size: 8", ""), ["N", 3, 224, 224], 0, ""),
        (NET.replace("max_batch_size: 8", "").replace("[ 3", "[ 4, 3").replace("[ 10", "[ 4, 10"),
         ["N", 3, 224, 224], 0, ""),
        (NET.replace("max_batch_size: 8", ""), ["N", 1, 28, 28], 5, "[-1, 1, 28, 28] in the ONNX file"),
        ('backend: "onnxruntime"\n', ["N", 3, 224, 224], 0, ""),
        (NET.replace('"x"', '"pixels"'), ["N", 3, 224, 224], 3, "no input 'pixels'; it has x"),
        (NET.replace('"y"', '"scores"'), ["N", 3, 224, 224], 6, "no output 'scores'; it has y"),
        (NET.replace("data_type: TYPE_FP32\n  dims: [ 10", "data_type: TYPE_FP16\n  dims: [ 10"),
         ["N", 3, 224, 224], 7, "TYPE_FP32 in the ONNX file"),
        (NET.replace("[ 3, 224", "[ -1, 3, 224"), ["N", 3, 224, 224], 5, "[3, 224, 224] behind the batch"),
        (NET.replace("3, 224, 224", "3, -1, -1"), ["N", 3, 224, 224], 5, "[3, 224, 224] behind the batch"),
        (NET, [1, 3, 224, 224], 2, "first dimension of x is fixed"),
        (NET.replace("224 ]", "224 ] reshape { shape: [ 3, 50176 ] }"), ["N", 3, 50176], 0, ""),
        (NET.replace("3, 224, 224", "3, ${side}, 224"), ["N", 3, 224, 224], 5, "placeholder"),
    ],
)  # fmt: skip
def test_tensors_of_an_onnx_model_are_those_of_its_file(tmp_path, config, dims, line, part):
    write(tmp_path, "net", config)
    graph = onnx_bytes([node("Op", ["x"], ["y"])], {"x": (FLOAT, dims)}, {"y": (FLOAT, ["N", 10])})
    (tmp_path / "net" / "1" / "model.onnx").write_bytes(graph)
    if not part:
        assert found(tmp_path) == []
    elif part == "placeholder":
        assert [name for name, _, _ in found(tmp_path)] == ["unfilled-placeholder"]
    else:
        finding = only(tmp_path)
        assert (finding.rule, finding.place.line) == ("onnx-tensors", line)
        assert part in finding.found


def test_every_input_of_an_onnx_file_is_declared(tmp_path):
    write(tmp_path, "net", NET)
    inputs = {"x": (FLOAT, ["N", 3, 224, 224]), "mask": (FLOAT, ["N", 1])}
    graph = onnx_bytes([node("Op", ["x", "mask"], ["y"])], inputs, {"y": (FLOAT, ["N", 10])})
    (tmp_path / "net" / "1" / "model.onnx").write_bytes(graph)
    assert "2 inputs, and mask is not declared" in only(tmp_path).found


@pytest.mark.parametrize(
    ("code", "part"),
    [
        ("class TritonPythonModel:\n    pass\n", ""),
        ("from mine import TritonPythonModel\n", ""),
        ("from mine import Model as TritonPythonModel\n", ""),
        ("from mine import *\n", ""),
        ("import mine\nTritonPythonModel = mine.Model\n", ""),
        ("class Model:\n    pass\n", "no class TritonPythonModel"),
        ("def execute(:\n", "cannot parse it"),
        ("x = '\0'\n", "cannot parse it"),
    ],
)
def test_a_python_model_that_cannot_be_imported(tmp_path, code, part):
    write(tmp_path, "m", 'backend: "python"\n', {"1/model.py": code})
    if part:
        finding = only(tmp_path)
        assert (finding.rule, finding.place.file) == ("python-model", "m/1/model.py")
        assert part in finding.found
    else:
        assert found(tmp_path) == []


def test_a_config_that_leaves_the_backend_open(tmp_path):
    write(tmp_path, "open", "max_batch_size: 8\n")
    write(tmp_path, "told", "max_batch_size: 8\n", {"1/model.onnx": "x"})
    write(tmp_path, "named.identity", "max_batch_size: 8\n")
    assert found(tmp_path) == [("no-backend", "open/config.pbtxt", 0)]
