"""Stands for docker, trtllm-build and TensorRT-LLM's scripts: records its call and makes what it should.

Environment: FAKE_LOG (where calls go), FAKE_IMAGE (what docker is asked to run), FAKE_CHECKPOINT and
FAKE_ENGINE (config.json of the products), FAKE_FAIL and FAKE_EMPTY (a word of the call that fails, or gives
empty files), FAKE_KILL (a word of the call in which the whole build is killed, before or after "@").
"""

import json
import os
import signal
import sys
from pathlib import Path

NONE = "no call has these words"
KEPT = ("HF_TOKEN", "TRTBUILD_GRPC_ADDRESS", "TRTLLM_ORCHESTRATOR")


def put(folder, files):
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        Path(folder, name).write_text(content)


def inside_the_container(arguments):
    """What docker was asked to run; the working folder becomes the mounted one."""
    if arguments[:2] == ["image", "inspect"]:
        sys.exit(1)
    if arguments[0] != "run":
        sys.exit(0)
    mount = next(word for word in arguments if word.endswith(":/work") or ":/repository" in word)
    os.chdir(mount.split(":")[0])
    return arguments[arguments.index(os.environ["FAKE_IMAGE"]) + 1 :]


tool, arguments = Path(sys.argv[0]).name, sys.argv[1:]
record = {"argv": sys.argv, "cwd": str(Path.cwd()), "env": {key: os.environ.get(key) for key in KEPT}}
with Path(os.environ["FAKE_LOG"]).open("a") as log:
    log.write(json.dumps(record) + "\n")
arguments = inside_the_container(arguments) if tool == "docker" else [tool, *arguments]
text = " ".join(arguments)
kill_before, _, kill_after = os.environ.get("FAKE_KILL", f"{NONE}@").partition("@")
if os.environ.get("FAKE_FAIL", NONE) in text:
    sys.exit("the tool's own words")
if kill_before and kill_before in text:
    os.killpg(0, signal.SIGKILL)
if "model_info" in text:
    print("== a container's greeting ==\n0123456789abcdef0123456789abcdef01234567")
elif "snapshot_download" in text:
    put("source.partial", {"config.json": "{}", "model.safetensors": "weights", "tokenizer.json": "{}"})
elif "convert_checkpoint" in text or "quantize.py" in text:
    ranks = {f"rank{rank}.safetensors": "weights" for rank in range(2)}
    put("checkpoint.partial", {"config.json": os.environ["FAKE_CHECKPOINT"], **ranks})
elif arguments[0] == "trtllm-build":
    ranks = {f"rank{rank}.engine": "kernels" for rank in range(2)}
    put("engine.partial", {"config.json": os.environ["FAKE_ENGINE"], **ranks})
elif arguments[:2] == ["python3", "-c"]:
    os.execv(sys.executable, [sys.executable, *arguments[1:]])
if os.environ.get("FAKE_EMPTY", NONE) in text:
    for path in Path().glob("*.partial/rank0.*"):
        path.write_text("")
if kill_after and kill_after in text:
    os.killpg(0, signal.SIGKILL)
