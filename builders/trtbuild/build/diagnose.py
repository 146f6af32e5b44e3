"""What an exit code and the last lines of a log mean, and what helps. The texts are those of public
reports.
"""

from __future__ import annotations

import re
import signal

# Pattern in the log → what it means, what helps; the first that matches is told.
_KNOWN: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        r"No space left on device",
        "the disk is full",
        ("free disk space and run it again: finished steps stay",),
    ),
    (
        r"CUDA out of memory|OutOfMemory|Requested amount of GPU memory",
        "the GPU's memory is full",
        ("stop what else uses the GPU", "lower max_batch_size or max_num_tokens in the plan"),
    ),
    (
        r"must be a multiple of 32",
        "a layer's width on a rank does not fit the packed kernels (TensorRT-LLM issue 2445)",
        ("another TP or group size; `trtbuild plan` names those that fit",),
    ),
    (
        r"GPU is required|no CUDA-capable device|Found no NVIDIA driver|could not select device driver",
        "there is no usable GPU",
        ("check nvidia-smi, and the NVIDIA container toolkit for docker",),
    ),
    (r"No module named '?([\w.]+)", "a Python package is missing", ("install it where the step runs",)),
    (
        r"can't open file",
        "TensorRT-LLM's examples are not where this version has them",
        ("check the container's release against the plan",),
    ),
    (
        r"unrecognized arguments|invalid choice|ambiguous option",
        "the tool is of another version than the plan is for",
        ("run it in the plan's container",),
    ),
    (
        r"GatedRepo|gated repo|401 Client Error|403 Client Error",
        "the model is gated",
        ("accept its licence on the hub and put a token into HF_TOKEN",),
    ),
    (
        r"RepositoryNotFound|404 Client Error",
        "the hub has no such repository or revision",
        ("check name and revision",),
    ),
    (
        r"LocalEntryNotFound|ConnectionError|Max retries exceeded|Name or service not known",
        "the hub cannot be reached",
        ("fetch the model on another machine and give the folder with --weights",),
    ),
    (
        r"Unable to find image|manifest unknown|pull access denied",
        "the container image cannot be had",
        ("docker pull it first", "choose another --container"),
    ),
)


def explain(code: int, tail: list[str]) -> tuple[str, tuple[str, ...]]:
    """Returns what happened in words, and what helps.

    Args:
        code: as ``subprocess`` gives it; negative for a signal.
        tail: the last lines of output.
    """
    text = "\n".join(tail)
    for pattern, meaning, remedies in _KNOWN:
        if re.search(pattern, text):
            return f"{meaning} (exit code {code})", remedies
    killed = -code if code < 0 else code - 128 if code > 128 else 0
    if killed == signal.SIGKILL:
        return "it was killed, most often for using too much memory (exit code 137)", (
            "build on a machine with more RAM; `trtbuild plan` says how much it takes",
        )
    if killed:
        try:
            name = signal.Signals(killed).name
        except ValueError:
            name = f"signal {killed}"
        return f"it was ended by {name}", ()
    return f"exit code {code}", ()
