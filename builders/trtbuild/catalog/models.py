"""The model catalogue (``data/models.yaml``): shapes, tokens, counts and where each came from."""

from __future__ import annotations

import difflib
import itertools
import re
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from trtbuild.catalog.datafile import read_data
from trtbuild.errors import CatalogError

# What people leave out of a Hugging Face name.
_SUFFIX = re.compile(r"-(?:instruct|chat|it|hf)(?=-|$)")
_PREFIX = "meta-"
# The one name that does not follow from a Hugging Face id: the 7B Qwen that people mean today.
# Qwen1 is "qwen-7b-chat".
_EXCEPTIONS = {"qwen-7b": "Qwen/Qwen2.5-7B-Instruct"}


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class MoeShape(_Frozen):
    """Mixture of experts: sizes of one expert and how many there are."""

    experts: int
    active: int
    ffn: int
    shared: int = 0
    shared_ffn: int | None = None  # of all shared experts together; None: shared * ffn
    shared_gate: bool = False
    dense_layers: int = 0  # leading layers with a plain MLP
    router_bias: bool = False
    correction_bias: bool = False
    expert_bias: bool = False


class MlaShape(_Frozen):
    """Multi-head latent attention: ranks and head sizes."""

    kv_rank: int
    q_rank: int | None
    nope: int
    rope: int
    v: int


class ModelShape(_Frozen):
    """A text tower as its config.json describes it; ``ffn`` is the width of one projection."""

    type: str
    class_: str = Field(alias="class")
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool
    context: int
    dtype: str
    position: str = "rope"
    rope_theta: float | None = None
    rope_local_theta: float | None = None
    rotary_dim: int | None = None
    rope_scaling: dict[str, Any] | None = None
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: bool = False
    sinks: bool = False
    window: int | None = None
    windowed_layers: int = 0
    gated_mlp: bool = True
    mlp_bias: bool = False
    parallel_attention: bool = False
    lm_head_bias: bool = False
    moe: MoeShape | None = None
    mla: MlaShape | None = None
    native_quant: str | None = None


class Tokens(_Frozen):
    """Ids that begin, end and pad a text; ``eos`` is a list because chat models have several."""

    bos: int | None
    eos: tuple[int, ...]
    pad: int | None


class Params(_Frozen):
    """Parameter counts: computed from the shapes, and as published."""

    text: int
    vision: int = 0
    published: int | None = None
    difference: str | None = None
    source: str | None = None


class Sibling(_Frozen):
    """A published checkpoint of the same model in another format."""

    repo: str
    method: str
    unverified: bool = False


class PackagedWeights(_Frozen):
    """Weights that a distribution on the package index carries."""

    package: str
    version: str
    file: str  # path inside the distribution
    bytes: int
    sha256: str
    format: str  # see `trtbuild formats`
    quant: tuple[str, ...]  # the --quant names that this file serves
    licence: str


class ModelRecord(_Frozen):
    """One checkpoint."""

    id: str
    shape: ModelShape
    tokens: Tokens
    params: Params
    licence: str
    gated: bool
    siblings: tuple[Sibling, ...] = ()
    packaged: tuple[PackagedWeights, ...] = ()
    unverified: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()
    source: tuple[str, ...]
    conflicts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The shortest catalogue name, such as ``qwen2.5-7b``."""
        return min(_names(self.id) - _EXCEPTIONS.keys(), key=lambda name: (len(name), name))

    @property
    def names(self) -> tuple[str, ...]:
        """All catalogue names, shortest first; the exceptions of the naming rule included."""
        extra = {name for name, target in _EXCEPTIONS.items() if target == self.id}
        taken = _EXCEPTIONS.keys() - extra
        return tuple(sorted((_names(self.id) - taken) | extra, key=lambda name: (len(name), name)))

    def packaged_for(self, quant: str) -> PackagedWeights | None:
        """The packaged weights that ``--quant quant`` means, if there are any."""
        for weights in self.packaged:
            if quant == weights.format or quant in weights.quant:
                return weights
        return None


@lru_cache(maxsize=1)
def all_models() -> tuple[ModelRecord, ...]:
    """Every model of the catalogue, in its order."""
    return tuple(ModelRecord.model_validate(row) for row in read_data("models.yaml")["models"])


def find_model(name: str) -> ModelRecord:
    """The model that ``name`` means: a Hugging Face id, or that id without its organisation, lower case,
    with or without ``-instruct``, ``-chat``, ``-it``, ``-hf`` and ``meta-``. Case does not matter.

    Raises:
        CatalogError: an unknown name (with the nearest ones) or one that several models share.
    """
    wanted = name.strip().lower()
    index = _index()
    found = index.get(wanted, ())
    if len(found) == 1:
        return found[0]
    if found:
        choices = ", ".join(record.id for record in found)
        raise CatalogError(f"{name!r} can mean {len(found)} models", f"write which: {choices}")
    near = _near(wanted, index)
    remedies = ["did you mean " + ", ".join(near) + "?"] if near else []
    raise CatalogError(
        f"no model in the catalogue is called {name!r}",
        *remedies,
        "`trtbuild models` lists the catalogue; for any other model fetch its config.json (no hub is asked "
        "here) and give the folder that holds it",
    )


def find_sibling(repository: str) -> tuple[ModelRecord, Sibling] | None:
    """The model of which a published checkpoint is a quantised form; None: it is of none that is known."""
    wanted = repository.strip().lower()
    for record in all_models():
        for sibling in record.siblings:
            if sibling.repo.lower() == wanted:
                return record, sibling
    return None


def _near(wanted: str, index: dict[str, tuple[ModelRecord, ...]]) -> list[str]:
    short = wanted.rsplit("/", 1)[-1]
    inside = [key for key in index if "/" not in key and short and (short in key or key in short)]
    close = difflib.get_close_matches(short, [key for key in index if "/" not in key], n=5, cutoff=0.6)
    ids: dict[str, None] = {}
    for key in itertools.chain(close, sorted(inside, key=len)):
        for record in index[key]:
            ids.setdefault(record.name)
    return list(ids)[:5]


@lru_cache(maxsize=1)
def _index() -> dict[str, tuple[ModelRecord, ...]]:
    by_key: dict[str, list[ModelRecord]] = {}
    for record in all_models():
        for key in (record.id.lower(), *record.names):
            by_key.setdefault(key, []).append(record)
    return {key: tuple(records) for key, records in by_key.items()}


def _names(hf_id: str) -> set[str]:
    full = hf_id.rsplit("/", 1)[-1].lower()
    bare = full.removeprefix(_PREFIX)
    names = {full, bare}
    for base in (full, bare):
        # Each suffix alone and all of them: Llama-2-7b-chat-hf is llama-2-7b-chat and llama-2-7b.
        matches = list(_SUFFIX.finditer(base))
        for count in range(1, len(matches) + 1):
            for chosen in itertools.combinations(matches, count):
                short = base
                for match in reversed(chosen):
                    short = short[: match.start()] + short[match.end() :]
                names.add(short)
    return names
