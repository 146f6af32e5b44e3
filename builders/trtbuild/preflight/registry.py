"""All rules, in the order in which their findings are told. A new rule is a new line here."""

from __future__ import annotations

from trtbuild.preflight import checkpoint, kv_cache, lengths, lora, machine, support, tp_group
from trtbuild.preflight.base import Rule

RULES: tuple[Rule, ...] = (
    support.check_target,
    support.check_format,
    support.check_kv_dtype,
    support.check_model,
    support.check_head_size,
    checkpoint.check_route,
    checkpoint.check_group,
    checkpoint.check_kv_scales,
    tp_group.check_mig,
    tp_group.check_heads,
    tp_group.check_groups,
    kv_cache.check_bias,
    kv_cache.check_reuse,
    lengths.check_context,
    lengths.check_num_tokens,
    kv_cache.check_pool,
    lora.check_lora,
    machine.check_driver,
    machine.check_ram,
    machine.check_disk,
)

# The CPU engine reads one file and builds nothing.
LOCAL_RULES: tuple[Rule, ...] = (
    checkpoint.check_route,
    lengths.check_context,
    lengths.check_num_tokens,
    kv_cache.check_pool,
    lora.check_lora,
)
