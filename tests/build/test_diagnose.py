"""What the end of a log means, in the words of public reports."""

from __future__ import annotations

import pytest

from trtbuild.build.diagnose import explain


@pytest.mark.parametrize(
    ("line", "meaning", "way_out"),
    [
        ("OSError: [Errno 28] No space left on device", "disk is full", "finished steps stay"),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
            "GPU's memory is full",
            "lower",
        ),
        (
            "Number of bytes for rows and cols must be a multiple of 32. However, num_rows_bytes = 4096",
            "does not fit the packed kernels",
            "another TP or group size",
        ),
        ("OSError: GPU is required for inference.", "no usable GPU", "nvidia-smi"),
        (
            'docker: Error from daemon: could not select device driver "" with capabilities: [[gpu]]',
            "no usable GPU",
            "container toolkit",
        ),
        ("ModuleNotFoundError: No module named 'tensorrt_llm.bindings'", "package is missing", "install it"),
        (
            "python3: can't open file '/app/tensorrt_llm/examples/qwen/convert_checkpoint.py'",
            "examples are not where",
            "release",
        ),
        (
            "trtllm-build: error: unrecognized arguments: --monitor_memory",
            "another version",
            "plan's container",
        ),
        ("huggingface_hub.errors.GatedRepoError: 403 Client Error.", "gated", "HF_TOKEN"),
        ("RepositoryNotFoundError: 404 Client Error.", "no such repository", "check name"),
        ("requests.exceptions.ConnectionError: Max retries exceeded", "cannot be reached", "--weights"),
        ("docker: Error response from daemon: manifest unknown", "image cannot be had", "docker pull"),
    ],
)
def test_known_endings_are_explained(line: str, meaning: str, way_out: str) -> None:
    message, remedies = explain(1, ["before", line])
    assert meaning in message
    assert way_out in " ".join(remedies)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (-9, "too much memory"),
        (137, "too much memory"),
        (-15, "SIGTERM"),
        (139, "SIGSEGV"),
        (3, "exit code 3"),
        (250, "signal 122"),
    ],
)
def test_codes_and_signals_have_names(code: int, words: str) -> None:
    assert words in explain(code, ["something else"])[0]
