"""A vLLM model that its backend refuses.

The backend hands `model.json` to vLLM as it stands: text that is no JSON object, an argument that
`AsyncEngineArgs` does not have, and a share of the GPU above 1 end the load. It sets `max_batch_size: 0` and
`decoupled: true` itself, and a config that says otherwise, or KIND_GPU with more than one GPU, is refused
(vllm_backend, src/model.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found, Place
from trtbuild.lint.model import ModelFolder
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.vllm import EngineArgs, read_engine_args

SEVERITY = "error"
_ENDS = "the model does not load"
# Of SamplingParams and transformers' GenerationConfig; none is an engine argument of any version.
_OF_A_REQUEST = frozenset(
    {
        *("n", "best_of", "temperature", "top_p", "top_k", "min_p", "stop", "stop_token_ids", "ignore_eos"),
        *("presence_penalty", "frequency_penalty", "repetition_penalty", "max_tokens", "min_tokens"),
        *("logprobs", "prompt_logprobs", "skip_special_tokens", "do_sample", "max_new_tokens", "max_length"),
        *("min_new_tokens", "no_repeat_ngram_size", "num_beams", "num_return_sequences"),
    }
)


def check(repository: LintRepository) -> Iterator[Found]:
    """The config and the engine arguments of every vLLM model."""
    for model in repository.readable:
        if model.backend == "vllm":
            yield from _config(model)
            for args in read_engine_args(model):
                yield from _arguments(args)
                yield from _kind(model, args)


def _config(model: ModelFolder) -> Iterator[Found]:
    size = model.field("max_batch_size")
    if size is not None and (size.number or 0) > 0:
        yield Found(
            model.at(size),
            f"max_batch_size is {size.text}",
            f"vLLM batches by itself: the backend wants 0, and {_ENDS}",
            "write 0, and max_num_seqs in model.json",
        )
    decoupled = model.field("model_transaction_policy.decoupled")
    if decoupled is not None and decoupled.text.lower() in ("false", "f", "0"):
        yield Found(
            model.at(decoupled),
            f"decoupled is {decoupled.text}",
            f"the backend answers in pieces and asserts that it may: {_ENDS}",
            "write true, or leave it out",
        )


def _arguments(args: EngineArgs) -> Iterator[Found]:
    if args.values is None:
        yield Found(
            Place(args.file, args.bad_line),
            f"model.json is no JSON object: {args.problem}",
            f"the backend cannot read it, and {_ENDS}",
            'write { "model": "NAME or folder", … } as UTF-8 without a byte order mark',
        )
        return
    for name in args.values:
        if name in _OF_A_REQUEST:
            yield Found(
                args.at(name),
                f"{name} is no argument of vLLM's engine",
                f"AsyncEngineArgs refuses what it does not know, and {_ENDS}",
                "leave it to the requests: their sampling_parameters",
            )
        elif "-" in name:
            yield Found(
                args.at(name),
                f"{name} is written as on a command line",
                f"AsyncEngineArgs refuses what it does not know, and {_ENDS}",
                f"write {name.lstrip('-').replace('-', '_')}",
            )
    if "model" not in args.values:
        yield Found(
            Place(args.file),
            "model.json names no model",
            "vLLM takes its default, a small one, and serves that",
            'write "model": "NAME or folder"',
            severity="warning",
        )
    share = args.values.get("gpu_memory_utilization")
    if isinstance(share, int | float) and not 0 < share <= 1:
        yield Found(
            args.at("gpu_memory_utilization"),
            f"gpu_memory_utilization is {share}",
            f"it is a share of the GPU, and {_ENDS}",
            "write a number above 0 and up to 1",
        )


def _kind(model: ModelFolder, args: EngineArgs) -> Iterator[Found]:
    for group in model.all("instance_group"):
        kind = group.message.get("kind") if group.message else None
        if args.ranks > 1 and kind is not None and kind.text == "KIND_GPU":
            yield Found(
                model.at(kind),
                f"KIND_GPU, and {args.file} asks for {args.ranks} GPUs",
                f"the backend takes KIND_GPU for models of one GPU, and {_ENDS}",
                "write kind: KIND_MODEL",
            )
