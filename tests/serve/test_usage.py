"""Whose process is whose, by the arguments that Triton gives its stubs."""

from __future__ import annotations

import os

import pytest

from trtbuild.serve.usage import _model, measure

MODELS = ["chat", "chat_small", "ocr"]


@pytest.mark.parametrize(
    ("instance", "model"),
    [
        ("chat_0_0", "chat"),
        ("chat_engine_0_0", "chat"),
        ("chat_small_0_1", "chat_small"),
        ("chat_small_engine_0_0", "chat_small"),
        ("ocr_rec_0_0", "ocr"),
        ("other_0_0", None),
    ],
)
def test_a_stub_belongs_to_the_model_with_the_longest_name_that_fits(instance, model):
    assert _model(["/x/triton_python_backend_stub", "./m/1/model.py", "336", instance], MODELS) == model


def test_this_process_is_counted_with_its_own_memory():
    used = measure(os.getpid(), "trtbuild-nothing-", [])
    assert used["/dev/shm"] == 0
    assert used["tritonserver"] > 5 << 20  # an interpreter holds more than 5 MiB
