#!/usr/bin/env python3
"""Stands for python3, trtllm-build and docker in a build: takes what the real tools take, and makes what they
make.

Environment:
    FAKE_NAME      which of the tools this is
    FAKE_CALLS     file that gets one line a call: the step's name
    FAKE_VERSION   TensorRT-LLM version whose argument parsers check the call
    FAKE_FACTS     JSON: product → {file: content} that a good run writes
    FAKE_FAULT     "<step>:<fault>"; faults: exit=N, kill=N, empty, missing, wrong, full, hang
    FAKE_STATE     folder in which docker notes its containers
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def parsers():
    sys.path[:0] = [str(ROOT)]
    from tests.support import trtllm_parsers

    return trtllm_parsers


def parse(step, arguments):
    """Refuses what the real tool would refuse; returns where its product goes."""
    tables = parsers()
    if step == "compile":
        parser = tables.snapshot_of(os.environ["FAKE_VERSION"]).parser()
    else:
        parser = {
            "quantise": tables.quantize_parser,
            "convert": tables.convert_parser,
            "tokenizer-info": tables.tokenizer_info_parser,
        }.get(step, tables.lora_parser)()
    parsed = parser.parse_args(arguments)
    if step.startswith("lora-"):
        if not (Path(parsed.in_file) / "adapter_model.safetensors").is_file():
            sys.exit(f"FileNotFoundError: {parsed.in_file}")
        return parsed.out_dir
    source = parsed.checkpoint_dir if step == "compile" else parsed.model_dir
    for folder in getattr(parsed, "lora_dir", None) or ():
        if not (Path(folder) / "adapter_config.json").is_file():
            sys.exit(f"FileNotFoundError: {folder}/adapter_config.json")
    if not (Path(source) / "config.json").is_file():
        sys.exit(f"FileNotFoundError: [Errno 2] No such file or directory: '{source}/config.json'")
    return parsed.output_dir


def which(arguments):
    """The step that a python3 command line means, and its own arguments."""
    if arguments[0] == "-c":
        return "ask" if "model_info" in arguments[1] else "fetch", arguments[2:]
    script = Path(arguments[0]).name
    if script == "hf_lora_convert.py":
        return "lora-" + Path(arguments[arguments.index("--in-file") + 1]).name, arguments[1:]
    names = {
        "quantize.py": "quantise",
        "convert_checkpoint.py": "convert",
        "generate_xgrammar_tokenizer_info.py": "tokenizer-info",
    }
    return names[script], arguments[1:]


def make(folder, files, *, half):
    folder.mkdir(parents=True, exist_ok=True)
    names = sorted(files)
    for name in names[: len(names) // 2] if half else names:
        if isinstance(files[name], dict):
            with (folder / name).open("wb") as file:
                file.truncate(files[name]["size"])  # a hole: nothing is written
        else:
            (folder / name).write_text(files[name])


def run(step, output):
    fault = dict(pair.split(":", 1) for pair in os.environ.get("FAKE_FAULT", "").split(";") if pair).get(
        step, ""
    )
    files = json.loads(os.environ["FAKE_FACTS"])[step]
    folder = Path(output)
    print(f"{step}: working", flush=True)
    make(folder, files, half=True)
    print(f"HALF {step}", flush=True)
    kind, _, number = fault.partition("=")
    if kind == "hang":
        signal.pause()
    if kind == "kill":
        os.kill(os.getpid(), int(number))
    if kind == "full":
        sys.exit("OSError: [Errno 28] No space left on device")
    if kind == "exit":
        sys.exit(int(number))
    make(folder, files, half=False)
    if kind in ("empty", "missing", "wrong"):
        name = "config.json" if kind == "wrong" else max(set(files) - {"config.json"})
        if kind == "missing":
            (folder / name).unlink()
        else:
            (folder / name).write_text("" if kind == "empty" else "{}")
    print(f"{step}: done", flush=True)


def docker(arguments):
    """docker version, rm and run: the mounted work folder becomes the working directory."""
    state = Path(os.environ["FAKE_STATE"])
    if arguments[0] == "version":
        print("27.0.1")
        return
    if arguments[0] == "rm":
        (state / arguments[-1]).unlink(missing_ok=True)
        return
    assert arguments[0] == "run", arguments
    switches, valued = {"--rm", "--init"}, {}
    words = arguments[1:]
    short = {"-v": "--volume", "-w": "--workdir", "-e": "--env"}
    while words[0].startswith("-"):
        flag, equals, value = words[0].partition("=")
        flag = short.get(flag, flag)
        if flag in switches:
            words = words[1:]
        elif equals:
            valued.setdefault(flag, []).append(value)
            words = words[1:]
        else:
            valued.setdefault(flag, []).append(words[1])
            words = words[2:]
    known = {"--name", "--gpus", "--network", "--shm-size", "--ulimit", "--security-opt", "--user"}
    known |= {"--volume", "--workdir", "--env"}
    if unknown := set(valued) - known:
        print(f"unknown flag: {unknown.pop()}", file=sys.stderr)
        sys.exit(125)
    name = valued.get("--name", ["unnamed"])[0]
    if (state / name).exists():
        print(f'Conflict. The container name "/{name}" is already in use', file=sys.stderr)
        sys.exit(125)
    (state / name).write_text(json.dumps({"image": words[0], "options": valued}))
    work = next(volume.split(":")[0] for volume in valued["--volume"] if volume.endswith(":/work"))
    assert valued["--workdir"] == ["/work"]
    os.chdir(work)
    with (state / "runs.jsonl").open("a") as runs:
        runs.write(json.dumps({"image": words[0], "options": valued, "command": words[1:]}) + "\n")
    (state / "last.json").write_text(json.dumps({"image": words[0], "options": valued, "argv": arguments}))
    try:
        main(words[1:])
    finally:
        (state / name).unlink(missing_ok=True)
    return


def main(words):
    name, arguments = Path(words[0]).name, words[1:]
    if name == "docker":
        docker(arguments)
        return
    if name == "python3" and arguments[0] == "-c" and "huggingface_hub" not in arguments[1]:
        checked = subprocess.run([sys.executable, *arguments], check=False)  # the script's own check
        sys.exit(checked.returncode)
    step, arguments = ("compile", arguments) if name == "trtllm-build" else which(arguments)
    if step == "ask":
        print("== a container's greeting ==\n" + os.environ.get("FAKE_COMMIT", "0" * 40))
        return
    with Path(os.environ["FAKE_CALLS"]).open("a") as calls:
        calls.write(f"{step}\n")
    run(step, arguments[2] if step == "fetch" else parse(step, arguments))


if __name__ == "__main__":
    main([os.environ["FAKE_NAME"], *sys.argv[1:]])
