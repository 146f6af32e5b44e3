"""How tokens are chosen, from a request's inputs, with TensorRT-LLM's defaults."""

from __future__ import annotations

from .config import ModelSettings
from .grammar import check_guide_type
from .inputs import Row
from .jobs import UNSUPPORTED, RequestRefused, Sampling


def read_sampling(row: Row, settings: ModelSettings) -> tuple[int, Sampling]:
    """Number of sequences to sample (1 for a beam search), and the sampling of the first.

    Without top-k and top-p it is greedy; top_p 0 beside a top-k means no top-p (topKSamplingLayer.cu,
    samplingConfig.h). Ranges of the penalties are OpenVINO GenAI's (generation_config.cpp, validate).

    Raises:
        RequestRefused: for values out of range, and for what the engine does not have.
    """
    beam_width, sequences = _beams(row, settings.engine.limits.max_beam_width)
    top_k = row.number("runtime_top_k", 0, low=0)
    top_p = row.number("runtime_top_p", 0.0, low=0.0, high=1.0)
    temperature = row.number("temperature", 1.0, low=0.0)
    all_beams = beam_width > 1 and row.array("num_return_sequences") is None
    sampling = Sampling(
        greedy=(top_k == 0 and top_p == 0.0) or top_k == 1 or temperature == 0.0,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p or 1.0,
        repetition_penalty=row.number("repetition_penalty", 1.0, low=0.0),
        presence_penalty=row.number("presence_penalty", 0.0, low=-2.0, high=2.0),
        frequency_penalty=row.number("frequency_penalty", 0.0, low=-2.0, high=2.0),
        min_tokens=row.number("min_tokens", 0, low=0),
        seed=row.scalar("seed", 0),
        beam_width=beam_width,
        beams_returned=beam_width if all_beams else sequences,
        length_penalty=row.number("len_penalty", 0.0),
        early_stopping=bool(row.scalar("early_stopping", True)),
        guide_type=row.text("guided_decoding_guide_type"),
        guide=row.text("guided_decoding_guide"),
    )
    if sampling.repetition_penalty == 0:
        raise RequestRefused("repetition_penalty is 0.0; it must be above 0")
    if beam_width > 1:
        _check_beam_search(sampling)
    if sampling.guide_type or sampling.guide:
        _check_guide(sampling, guided=settings.engine.guided)
    return (1 if beam_width > 1 else sequences), sampling


def _beams(row: Row, max_beam_width: int) -> tuple[int, int]:
    """Beam width and number of sequences to return."""
    beam_width = row.scalar("beam_width", 1)
    if not 1 <= beam_width <= max_beam_width:
        raise RequestRefused(
            f"Requested beam width {beam_width} is not between 1 and the engine's max_beam_width "
            f"{max_beam_width}"
        )
    sequences = row.scalar("num_return_sequences", 1)
    if sequences < 1 or (beam_width > 1 and sequences > beam_width):
        most = f", and at most beam_width {beam_width}" if beam_width > 1 else ""
        raise RequestRefused(f"num_return_sequences is {sequences}; it must be at least 1{most}")
    return beam_width, sequences


def _check_beam_search(sampling: Sampling) -> None:
    if (sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty) != (
        1.0,
        0.0,
        0.0,
    ):
        raise RequestRefused(
            "the CPU engine has no penalties in a beam search; use beam_width 1, or neutral penalties"
        )
    if not sampling.greedy:
        raise RequestRefused("the CPU engine's beam search does not sample; leave out top-k and top-p")
    if sampling.guide_type or sampling.guide:
        raise RequestRefused("guided decoding needs beam_width 1")


def _check_guide(sampling: Sampling, *, guided: bool) -> None:
    if not guided:
        raise RequestRefused(
            f"guided decoding is off; set parameter guided_decoding_backend to xgrammar{UNSUPPORTED}"
        )
    check_guide_type(sampling.guide_type, sampling.guide)
