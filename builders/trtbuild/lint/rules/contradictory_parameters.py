"""Parameters that do not go together.

Lookahead decoding without its three sizes, guided decoding without what it needs, beam search with a beam
width of 1, streamed weights in an engine that was not built for them.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.model import ModelFolder, Parameter
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.roles import is_cpp_engine

SEVERITY = "error"
_LOOKAHEAD = ("lookahead_window_size", "lookahead_ngram_size", "lookahead_verification_set_size")


def check(repository: LintRepository) -> Iterator[Found]:
    """Pairs of parameters of engine models."""
    for model in repository.readable:
        if is_cpp_engine(model):
            yield from _decoding(model)
            yield from _guided(model)


def _set(model: ModelFolder, key: str) -> Parameter | None:
    parameter = model.parameters.get(key)
    return parameter if parameter is not None and parameter.is_set else None


def _decoding(model: ModelFolder) -> Iterator[Found]:
    mode, beam = _set(model, "decoding_mode"), _set(model, "max_beam_width")
    if mode is None:
        return
    missing = [key for key in _LOOKAHEAD if _set(model, key) is None]
    if mode.value == "lookahead" and missing:
        yield Found(
            model.at(mode.place),
            f"decoding_mode lookahead without {', '.join(missing)}",
            "the backend throws when the model loads",
            f"set {', '.join(missing)}, or choose another decoding_mode",
        )
    if mode.value == "beam_search" and (beam is None or beam.value == "1"):
        yield Found(
            model.at(mode.place),
            f"decoding_mode beam_search with max_beam_width {beam.value if beam else '1 (the default)'}",
            "one beam is no search; requests with more beams are refused",
            "raise max_beam_width (the engine must be built for it), or leave decoding_mode empty",
        )


def _guided(model: ModelFolder) -> Iterator[Found]:
    backend = _set(model, "guided_decoding_backend")
    if (
        backend is not None
        and backend.value == "xgrammar"
        and _set(model, "xgrammar_tokenizer_info_path") is None
    ):
        yield Found(
            model.at(backend.place),
            "guided_decoding_backend xgrammar without xgrammar_tokenizer_info_path",
            "the C++ backend needs the tokenizer's vocabulary as a file, and guided requests fail",
            "write it with examples/generate_xgrammar_tokenizer_info.py and give its path",
        )
