"""Host RAM of a GPU deployment: one row set a rank, and words that fit the target."""

from __future__ import annotations

import pytest
from tests.support.plans import llm_plan

from trtbuild.plan import constants
from trtbuild.plan.ledger import gpu_process_items, host_items, model_items
from trtbuild.plan.model import LlmPlan
from trtbuild.spec import Target


def host(llms: list[LlmPlan], target: Target) -> dict[str, int]:
    return {item.item: item.bytes for item in host_items(llms, [], target, shm_bytes=1 << 20)}


def test_leader_mode_is_a_server_a_gpu() -> None:
    one, four = (host([llm_plan(tp=tp)], Target.ENGINE) for tp in (1, 4))
    for row in ("tritonserver", "pinned pool", "engine files"):
        assert four[row] == 4 * one[row]
    assert one["engine files"] == 5_600_000_000


def test_workers_of_several_engines_and_of_the_llm_api_are_counted_by_rank() -> None:
    several = host([llm_plan("a", tp=2), llm_plan("b")], Target.ENGINE)
    assert several["engine workers"] == 3 * constants.SERVER_HOST_BYTES
    assert several["tritonserver"] == constants.SERVER_HOST_BYTES
    assert "pinned pool" not in several  # the server is started with a pool of 0
    python = host([llm_plan(tp=2)], Target.LLMAPI)
    assert python["engine workers"] == 2 * constants.TORCH_HOST_BYTES


@pytest.mark.parametrize(
    ("target", "row"), [(Target.LLMAPI, "checkpoint files"), (Target.ENGINE, "engine files")]
)
def test_the_llm_api_has_no_engine_file(target: Target, row: str) -> None:
    files = [name for name in host([llm_plan()], target) if name.endswith("files")]
    assert files == [row]


def test_a_server_without_language_models_is_in_no_leader_mode() -> None:
    rows = list(gpu_process_items([], Target.ENGINE, has_vision=True))
    assert not any("leader" in row.why for row in rows)


def test_only_what_the_target_loads_is_billed() -> None:
    tower = [
        row for row in model_items(llm_plan(vision_tower_bytes=1 << 30), Target.LLMAPI) if "tower" in row.item
    ]
    assert tower
    assert "left out" not in tower[0].why
