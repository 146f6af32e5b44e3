"""Old repositories of every version, written anew: what comes along, and what does not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.lint_repo import FACTS, found, line_of, nvidia, parameter, write
from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from trtbuild.cli import run

VERSIONS = sorted(path.stem for path in FACTS.glob("*.json"))
# Llama-3.1-8B: one model of the catalogue has these sizes and this name.
LLAMA = {
    "architecture": "LlamaForCausalLM", "dtype": "float16", "num_hidden_layers": 32, "hidden_size": 4096,
    "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 131072, "head_size": 128,
}  # fmt: skip


def engine(
    folder: Path,
    *,
    algo: str | None = "W4A16_AWQ",
    kv: str | None = None,
    build: Mapping[str, Any] | None = None,
    mapping: Mapping[str, int] | None = None,
    shape: Mapping[str, Any] | None = None,
    version: str = "0.16.0",
) -> Path:
    """An engine's folder as trtllm-build leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "version": version,
        "pretrained_config": {
            **LLAMA,
            **(shape or {}),
            "quantization": {"quant_algo": algo, "kv_cache_quant_algo": kv},
            "mapping": {"world_size": 1, "tp_size": 1, "pp_size": 1, **(mapping or {})},
        },
        "build_config": {
            "max_input_len": 3584, "max_seq_len": 4096, "max_batch_size": 16, "max_beam_width": 1,
            "plugin_config": {"use_paged_context_fmha": True, "remove_input_padding": True},
            **(build or {}),
        },
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    (folder / "rank0.engine").write_bytes(b"x")
    return folder / "config.json"


def old_repository(
    repo: Path, version: str = "0.16.0", values: Mapping[str, str] | None = None, **kw: Any
) -> Path:
    """NVIDIA's five models with an engine and a tokenizer that is called after its model."""
    tokenizer = repo.parent / "Llama-3.1-8B-Instruct"
    tokenizer.mkdir(exist_ok=True)
    whole = Tokenizer(
        BPE(vocab={char: id_ for id_, char in enumerate(sorted(ByteLevel.alphabet()))}, merges=[])
    )
    whole.pre_tokenizer, whole.decoder = ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    whole.save(str(tokenizer / "tokenizer.json"))
    (tokenizer / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    chosen = {"gpt_model_path": str(repo / "tensorrt_llm" / "1"), "tokenizer_dir": str(tokenizer)}
    nvidia(repo, version, values={**chosen, **(values or {})}, **kw)
    engine(repo / "tensorrt_llm" / "1")
    return repo


def tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def migrate(old: Path, *flags: str, target: str = "llmapi", code: int = 0, capsys: Any) -> dict[str, Any]:
    """The JSON answer of a migration to ``NEW`` beside the old repository."""
    assert (
        run(["migrate", str(old), "--target", target, "--output", str(old.parent / "new"), "--json", *flags])
        == code
    )
    return json.loads(capsys.readouterr().out)


def note_of(answer: Mapping[str, Any], part: str) -> dict[str, Any]:
    (note,) = [note for note in answer["notes"] if part in note["item"]]
    return note


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("target", "flags"), [("llmapi", ()), ("engine", ("--container", "25.10"))])
def test_every_version_becomes_a_repository_that_lints_clean(tmp_path, capsys, version, target, flags):
    old = old_repository(tmp_path / "old", version)
    before = tree(old)
    answer = migrate(old, *flags, target=target, capsys=capsys)
    new = tmp_path / "new"
    (llm,) = answer["plan"]["models"]
    assert (llm["source"], llm["quant"], llm["max_batch_size"]) == (
        "meta-llama/Llama-3.1-8B-Instruct",
        "awq",
        16,
    )
    assert (llm["max_input_tokens"], llm["max_seq_len"]) == (3584, 4096)
    assert {rule for rule, _, _ in found(new)} <= {"container-cve"}
    assert tree(old) == before
    copied, own = (
        folder / "tokenizer.json"
        for folder in (new / "llama-3.1-8b" / "1" / "tokenizer", tmp_path / "Llama-3.1-8B-Instruct")
    )
    assert copied.read_bytes() == own.read_bytes()
    assert answer["models"] == {name: name for name in (
        "ensemble", "postprocessing", "preprocessing", "tensorrt_llm", "tensorrt_llm_bls")}  # fmt: skip


def test_templates_that_were_never_filled(tmp_path, capsys):
    """Only the model has to be said; the rest is planned, and placeholders are listed with their lines."""
    old = nvidia(
        tmp_path / "old", "0.16.0", values={"gpt_model_path": "${engine_dir}", "tokenizer_dir": "${t}"}
    )
    path = old / "tensorrt_llm" / "config.pbtxt"
    path.write_text(
        path.read_text()
        .replace("max_batch_size: 8", "max_batch_size: ${triton_max_batch_size}", 1)
        .replace("max_queue_delay_microseconds: 0", "max_queue_delay_microseconds: ${delay}", 1)
    )
    assert run(["migrate", str(old), "--target", "llmapi", "--output", str(tmp_path / "new")]) == 1
    assert "--model tensorrt_llm=NAME_OR_FOLDER" in capsys.readouterr().err
    answer = migrate(old, "--model", "qwen-7b", capsys=capsys)
    note = note_of(answer, "${triton_max_batch_size}")
    assert (note["file"], note["line"]) == (
        "tensorrt_llm/config.pbtxt",
        line_of(path, "${triton_max_batch_size}"),
    )
    assert note["fate"] == "left"
    assert not [note for note in answer["notes"] if "max_queue_delay" in note["item"]]
    assert found(tmp_path / "new") == []


def test_the_pool_is_the_smaller_of_cap_and_share(tmp_path, capsys):
    """A cap of 20480 tokens on an L4 with room for more; without it the share of 0.2 decides."""
    old = old_repository(tmp_path / "old", values={"max_tokens_in_paged_kv_cache": "20480"})
    answer = migrate(old, "--gpu", "l4", capsys=capsys)
    (llm,) = answer["plan"]["models"]
    assert llm["kv_tokens"] == 20480
    assert "20480 tokens" in note_of(answer, "a pool of 20480")["now"]
    (tmp_path / "b").mkdir()
    other = old_repository(
        tmp_path / "b" / "old",
        values={"max_tokens_in_paged_kv_cache": "", "kv_cache_free_gpu_mem_fraction": "0.5"},
    )
    (half,) = migrate(other, "--gpu", "l4", capsys=capsys)["plan"]["models"]
    free = json.loads((tmp_path / "b" / "new" / "plan.json").read_text())["free_bytes"]
    # Half of the room to the pool, so that as much stays free, to a block of 32 tokens.
    assert abs(free - half["kv_bytes"]) <= 2 * 32 * half["kv_bytes_per_token"]


def test_what_the_new_one_does_otherwise_is_listed_with_its_line(tmp_path, capsys):
    values = {
        "decoding_mode": "medusa", "max_beam_width": "4", "gpu_device_ids": "2,3",
        "kv_cache_host_memory_bytes": "1000", "lora_cache_max_adapter_size": "32",
        "exclude_input_in_output": "False", "batch_scheduler_policy": "max_utilization",
    }  # fmt: skip
    old = old_repository(tmp_path / "old", values=values, decoupled="false")
    path = old / "tensorrt_llm" / "config.pbtxt"
    path.write_text(path.read_text() + "model_warmup [ { name: 'w' } ]\n" + parameter("my_key", "1"))
    write(old, "classifier", 'backend: "onnxruntime"\n', {"1/model.onnx": "x"})
    (old / "launch.sh").write_text("tritonserver --model-repository .\n")
    answer = migrate(old, capsys=capsys)
    for part, fate in {
        "decoding_mode medusa": "changed", "max_beam_width 4": "changed", "gpu_device_ids 2,3": "changed",
        "kv_cache_host_memory_bytes 1000": "changed", "lora_cache_max_adapter_size 32": "changed",
        "exclude_input_in_output False": "changed", "batch_scheduler_policy max_utilization": "changed",
        "decoupled false": "changed", "model_warmup": "left", "my_key 1": "left", "classifier": "left",
        "launch.sh": "left",
    }.items():  # fmt: skip
        note = note_of(answer, part)
        assert (note["fate"], bool(note["why"])) == (fate, True), part
    assert note_of(answer, "decoding_mode")["line"] == line_of(path, '"medusa"')
    assert note_of(answer, "model_warmup")["line"] == line_of(path, "model_warmup")


def test_inputs_of_the_front_have_the_newest_names_in_every_version(tmp_path, capsys):
    """0.18.0 still says min_length and random_seed; the front that takes the BLS model's place does not."""
    answer = migrate(old_repository(tmp_path / "old"), "--container", "25.03", target="engine", capsys=capsys)
    assert note_of(answer, "input min_length")["fate"] == "changed"
    assert note_of(answer, "input random_seed")["fate"] == "changed"


def test_what_clients_notice_is_said_first_and_is_no_failure(tmp_path, capsys):
    """The old defaults of a unary service: nothing of it is lost without a word."""
    values = {"add_special_tokens": "False", "batch_scheduler_policy": "max_utilization"}
    old = old_repository(tmp_path / "old", values=values, decoupled="False")
    assert run(["migrate", str(old), "--target", "llmapi", "--output", str(tmp_path / "new")]) == 0
    head, _, rest = capsys.readouterr().out.partition("\n\n")
    assert head.startswith("ATTENTION")
    for part in ("decoupled false → decoupled true", "add_special_tokens False", "max_utilization"):
        assert part in head
        assert part not in rest
    answer = migrate(old, capsys=capsys)
    behaviour = [note["behaviour"] for note in answer["notes"]]
    assert behaviour == sorted(behaviour, reverse=True)
    assert sum(behaviour) == head.count("\n")


@pytest.mark.parametrize("target", ["llmapi", "engine"])
def test_what_the_old_one_switched_off_stays_off(tmp_path, capsys, target):
    off = {"enable_kv_cache_reuse": "false", "enable_chunked_context": "0"}
    answer = migrate(old_repository(tmp_path / "old", values=off), target=target, capsys=capsys)
    (llm,) = answer["plan"]["models"]
    assert (llm["kv_reuse"], llm["chunked_context"]) == (False, False)
    assert (
        note_of(answer, "KV reuse off")["fate"] == note_of(answer, "chunked context off")["fate"] == "carried"
    )
    (tmp_path / "b").mkdir()
    on = dict.fromkeys(off, "True")
    answer = migrate(old_repository(tmp_path / "b" / "old", values=on), target=target, capsys=capsys)
    (llm,) = answer["plan"]["models"]
    assert (llm["kv_reuse"], llm["chunked_context"]) == (True, True)
    assert not {note["item"].split()[0] for note in answer["notes"]} & {"KV", "chunked", *off}


def test_whole_prompts_that_do_not_fit_run_in_chunks(tmp_path, capsys):
    old = old_repository(tmp_path / "old", values={"enable_chunked_context": "False"})
    engine(old / "tensorrt_llm" / "1", build={"max_seq_len": 131072, "max_input_len": 130000})
    answer = migrate(old, "--gpu", "l4", capsys=capsys)
    assert answer["plan"]["fits"]
    assert answer["plan"]["models"][0]["chunked_context"]
    note = note_of(answer, "chunked context off")
    assert (note["fate"], note["behaviour"]) == ("changed", True)


def test_code_is_one_note_for_all_models(tmp_path, capsys):
    old = old_repository(tmp_path / "old")
    for name in ("preprocessing", "postprocessing"):
        (old / name / "1" / "model.py").write_text("class TritonPythonModel: ...\n")
    note = note_of(migrate(old, capsys=capsys), "the code of")
    assert note["item"] == "the code of postprocessing, preprocessing"
    assert note["file"] == "postprocessing/1/model.py"


@pytest.mark.parametrize("streams", [True, False])
def test_an_llm_api_model_says_in_its_yaml_whether_it_streams(tmp_path, capsys, streams):
    settings = {
        "model": "Qwen/Qwen2.5-7B-Instruct", "enable_chunked_prefill": False,
        "kv_cache_config": {"enable_block_reuse": False}, "triton_config": {"decoupled": streams},
    }  # fmt: skip
    files = {"1/model.py": "", "1/model.yaml": json.dumps(settings)}
    write(tmp_path / "old", "tensorrt_llm", 'backend: "python"\n', files)
    answer = migrate(tmp_path / "old", capsys=capsys)
    (llm,) = answer["plan"]["models"]
    assert (llm["kv_reuse"], llm["chunked_context"]) == (False, False)
    told = [note["file"] for note in answer["notes"] if "decoupled" in note["item"]]
    assert told == ([] if streams else ["tensorrt_llm/1/model.yaml"])


def test_formats_that_the_llm_api_lacks_become_the_nearest(tmp_path, capsys):
    old = old_repository(tmp_path / "old")
    engine(old / "tensorrt_llm" / "1", algo="W8A16", kv="INT8")
    answer = migrate(old, capsys=capsys)
    assert note_of(answer, "weights in W8A16")["now"] == "quant fp8"
    assert note_of(answer, "a KV cache in INT8")["now"] == "kv_dtype auto"
    kept = migrate(old, "--output", str(tmp_path / "kept"), target="engine", capsys=capsys)
    assert note_of(kept, "weights in W8A16")["now"] == "quant int8"


def test_pipeline_ranks_become_tensor_ranks(tmp_path, capsys):
    old = old_repository(tmp_path / "old")
    engine(old / "tensorrt_llm" / "1", mapping={"world_size": 4, "tp_size": 2, "pp_size": 2})
    answer = migrate(old, capsys=capsys)
    assert answer["plan"]["models"][0]["tp"] == 4
    assert note_of(answer, "tp 2, pp 2")["fate"] == "changed"


@pytest.mark.parametrize(
    "change",
    [
        {"mapping": {"tp_size": 10**6}},
        {"build": {"max_batch_size": 10**15}},
        {"build": {"max_seq_len": 10**15, "max_input_len": 10**14}},
        {"build": {"max_seq_len": -5, "max_batch_size": 0}},
        {"build": {"max_seq_len": 1, "max_input_len": 1}},
        {"build": {"max_seq_len": 4096.5, "max_batch_size": "16"}},
        {"algo": "x\ny", "kv": "NVFP4"},
        {"algo": "MIXED_PRECISION"},
    ],
)
def test_senseless_numbers_of_an_engine_never_stop_it(tmp_path, capsys, change):
    old = old_repository(tmp_path / "old")
    engine(old / "tensorrt_llm" / "1", **change)
    assert migrate(old, capsys=capsys)["plan"]["fits"]
    assert found(tmp_path / "new") == []


def test_a_builders_default_batch_that_cannot_fit_is_planned(tmp_path, capsys):
    """2048 requests at once are what trtllm-build takes where nobody says a number; the config says 8."""
    old = old_repository(tmp_path / "old")
    engine(old / "tensorrt_llm" / "1", build={"max_batch_size": 2048})
    assert migrate(old, capsys=capsys)["plan"]["models"][0]["max_batch_size"] == 8
    engine(
        old / "tensorrt_llm" / "1",
        build={"max_batch_size": 1000, "max_seq_len": 131072, "max_input_len": 130000},
    )
    answer = migrate(old, "--output", str(tmp_path / "b"), "--gpu", "l4", capsys=capsys)
    note = note_of(answer, "1000 requests at once")
    (llm,) = answer["plan"]["models"]
    assert answer["plan"]["fits"]
    assert llm["max_batch_size"] == 1000 or note["fate"] == "changed"
    # The old pool of 20480 tokens held no sequence of 131072; the old server cut them without a word.
    assert llm["max_seq_len"] == llm["kv_tokens"] == 20480
    assert note_of(answer, "sequences of 131072 tokens")["now"] == "19408 tokens in, 1072 out"


def test_two_engines_get_names_of_their_own_and_pools_that_fit_together(tmp_path, capsys):
    old = old_repository(tmp_path / "old", values={"max_tokens_in_paged_kv_cache": ""})
    text = (old / "tensorrt_llm" / "config.pbtxt").read_text()
    text = text.replace('name: "tensorrt_llm"', 'name: "second"', 1).replace("tensorrt_llm/1", "second/1")
    write(old, "second", text)
    engine(old / "second" / "1")
    assert (
        run(
            [
                "migrate",
                str(old),
                "--target",
                "llmapi",
                "--output",
                str(tmp_path / "new"),
                "--model",
                "qwen-7b",
            ]
        )
        == 1
    )
    assert "2 engines: second, tensorrt_llm" in capsys.readouterr().err
    answer = migrate(old, "--model", "second=llama-3.1-8b", "--gpu", "h100", capsys=capsys)
    names = [llm["name"] for llm in answer["plan"]["models"]]
    assert names == ["llama-3.1-8b", "llama-3.1-8b-tensorrt_llm"]
    assert answer["plan"]["fits"]
    assert answer["models"]["ensemble"] == "llama-3.1-8b-tensorrt_llm_ensemble"
    assert found(tmp_path / "new") == []


def test_a_model_that_clients_call_by_a_name_of_its_own_keeps_it(tmp_path, capsys):
    old = old_repository(tmp_path / "old")
    path = old / "tensorrt_llm_bls" / "config.pbtxt"
    text = (
        path.read_text()
        .replace('name: "tensorrt_llm_bls"', 'name: "assistant"')
        .replace('""', '"tensorrt_llm"', 1)
    )
    (old / "tensorrt_llm_bls").rename(old / "assistant")
    (old / "assistant" / "config.pbtxt").write_text(text)
    answer = migrate(old, capsys=capsys)
    assert answer["models"]["assistant"] == "assistant"
    assert (tmp_path / "new" / "assistant" / "config.pbtxt").is_file()


def test_another_model_than_the_engine_holds_is_refused(tmp_path, capsys):
    old = old_repository(tmp_path / "old")
    assert (
        run(
            [
                "migrate",
                str(old),
                "--target",
                "llmapi",
                "--output",
                str(tmp_path / "new"),
                "--model",
                "qwen-7b",
            ]
        )
        == 1
    )
    assert "hidden_size 4096, not 3584" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_an_unknown_model_is_taken_from_its_folder(tmp_path, capsys):
    """No model of the catalogue has 12 layers of 768; the tokenizer's folder is the Hugging Face model's."""
    old = old_repository(tmp_path / "old")
    small = {"num_hidden_layers": 12, "hidden_size": 768, "intermediate_size": 2048,
             "num_attention_heads": 12,
             "num_key_value_heads": 12, "vocab_size": 32000, "max_position_embeddings": 4096}  # fmt: skip
    engine(old / "tensorrt_llm" / "1", shape=small, algo=None)
    assert run(["migrate", str(old), "--target", "engine", "--output", str(tmp_path / "new")]) == 1
    assert "num_hidden_layers 12" in capsys.readouterr().err
    (tmp_path / "Llama-3.1-8B-Instruct" / "config.json").write_text(
        json.dumps({"model_type": "llama", "torch_dtype": "float16", **small})
    )
    answer = migrate(old, target="engine", capsys=capsys)
    assert answer["plan"]["models"][0]["source"] == str(tmp_path / "Llama-3.1-8B-Instruct")


def test_an_engine_elsewhere_is_named(tmp_path, capsys):
    old = old_repository(tmp_path / "old", values={"gpt_model_path": "/mnt/engines/x"})
    for file in (old / "tensorrt_llm" / "1").iterdir():
        file.unlink()
    answer = migrate(old, "--dry-run", capsys=capsys)
    assert note_of(answer, "the longest sequence")["now"] == "2048 tokens in, 512 out"
    engine(tmp_path / "moved", build={"max_seq_len": 8192, "max_input_len": 8000})
    answer = migrate(old, "--dry-run", "--engine", str(tmp_path / "moved"), capsys=capsys)
    assert answer["plan"]["models"][0]["max_seq_len"] == 8192
    assert answer["repository"] is None
    assert not (tmp_path / "new").exists()


def test_nvidias_own_llm_api_model(tmp_path, capsys):
    """Its model.yaml names the model; sizes and pool come from it."""
    settings = {
        "model": "Qwen/Qwen2.5-7B-Instruct", "backend": "pytorch", "tensor_parallel_size": 2,
        "max_batch_size": 24, "max_seq_len": 4096,
        "kv_cache_config": {"max_tokens": 40960}, "triton_config": {"max_batch_size": 0},
    }  # fmt: skip
    write(
        tmp_path / "old",
        "tensorrt_llm",
        'backend: "python"\n',
        {"1/model.py": "", "1/model.yaml": json.dumps(settings)},
    )
    (llm,) = migrate(tmp_path / "old", capsys=capsys)["plan"]["models"]
    assert (llm["source"], llm["tp"], llm["max_batch_size"]) == ("Qwen/Qwen2.5-7B-Instruct", 2, 24)
    assert (llm["kv_tokens"], llm["max_seq_len"]) == (40960, 4096)


@pytest.mark.parametrize("place", ["old", "old/inside", "."])
def test_the_new_one_is_never_in_the_old_one_or_around_it(tmp_path, capsys, place):
    old = old_repository(tmp_path / "old")
    before = tree(tmp_path)
    assert run(["migrate", str(old), "--target", "llmapi", "--output", str(tmp_path / place)]) == 1
    assert "must stay as it is" in capsys.readouterr().err
    assert tree(tmp_path) == before


def test_what_cannot_be_migrated_says_why(tmp_path, capsys):
    def fails(old: Path) -> str:
        assert run(["migrate", str(old), "--target", "llmapi", "--output", str(tmp_path / "new")]) == 1
        return capsys.readouterr().err

    assert "is no folder" in fails(tmp_path / "none")
    write(tmp_path / "vision", "net", 'backend: "onnxruntime"\n', {"1/model.onnx": ""})
    assert "it holds net (onnxruntime)" in fails(tmp_path / "vision")
    write(tmp_path / "broken", "tensorrt_llm", 'backend: "tensorrtllm\n')
    assert "tensorrt_llm/config.pbtxt:1" in fails(tmp_path / "broken")
    (tmp_path / "deep").mkdir()
    old_repository(tmp_path / "deep" / "models")
    assert "trtbuild migrate " in fails(tmp_path / "deep")
    run(["--model", "qwen-7b", "--gpu", "l4", "--output", str(tmp_path / "ours")])
    assert "was written by trtbuild already" in fails(tmp_path / "ours")
