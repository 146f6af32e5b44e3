"""First step of the classic ensemble: text to ids, with NVIDIA's tensor names.

Parameters of config.pbtxt (string values):

    text_model          name of the text front, whose folder beside this model's holds the tokenizer and the
                        text package; required
    add_special_tokens  whether prompts get what the model's texts begin with (BOS), never twice.
                        Default true
    max_input_tokens    longest prompt; 0: no limit. Default 0
    engine_vocab_size   length of EMBEDDING_BIAS, the engine's padded vocabulary; 0: the tokenizer's.
                        Default 0

Stop and bad words are encoded without special tokens; a stop word that is a special token's text becomes its
id, and every end id of the model beyond the first is a stop word, since an engine takes just one END_ID.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import triton_python_backend_utils as pb_utils

if TYPE_CHECKING:
    from trtbuild_templates.faults import told
else:
    from .faults import told

# One text leaves nothing to share among threads: handing it to one takes twice as long as encoding it.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

Array = npt.NDArray[Any]


class TritonPythonModel:
    """Triton's entry. Requests may be batches; each row is one prompt."""

    def initialize(self, args: dict[str, str]) -> None:
        """Loads the tokenizer of the text front's folder."""
        given = json.loads(args["model_config"]).get("parameters") or {}
        values = {key: entry["string_value"] for key, entry in given.items()}
        folder = Path(args["model_repository"]).parent / values["text_model"] / "1"
        sys.path.insert(0, str(folder))
        self._text: Any = importlib.import_module("tritontext")
        self._assets = self._text.TextAssets(folder / "tokenizer")
        self._adds_special = values.get("add_special_tokens", "true").lower() in ("true", "1")
        self._max_input_tokens = int(values.get("max_input_tokens", "0"))
        self._vocab_size = int(values.get("engine_vocab_size", "0")) or self._assets.vocab_size

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Returns one response a request; a refused one carries the reason."""
        return [self._respond(request) for request in requests]

    def _respond(self, request: Any) -> Any:
        try:
            made = self._encode({tensor.name(): tensor.as_numpy() for tensor in request.inputs()})
        except self._text.TextError as exc:
            # in a stream a text alone says what kind it is: gRPC gives it no code before Triton 26.04
            error = pb_utils.TritonError(f"{exc} [INVALID_ARG]", pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(output_tensors=[], error=error)
        except Exception as exc:  # of this request alone
            error = pb_utils.TritonError(told("encoding the text failed", exc, pb_utils))
            return pb_utils.InferenceResponse(output_tensors=[], error=error)
        names = request.requested_output_names()
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(name, made[name]) for name in names if name in made]
        )

    def _encode(self, tensors: dict[str, Array]) -> dict[str, Array]:
        assets, rows = self._assets, len(tensors["QUERY"])
        ids = [self._prompt(item) for item in tensors["QUERY"].reshape(rows)]
        pad_ids = tensors.get("PAD_ID", np.full((rows, 1), assets.pad_id, dtype=np.int32))
        end_ids = tensors.get("END_ID")
        extra_ends: Sequence[int] = ()
        if end_ids is None:
            first, *extra_ends = assets.end_ids or (-1,)
            end_ids = np.full((rows, 1), first, dtype=np.int32)
        width = max(map(len, ids))
        input_ids = np.empty((rows, width), dtype=np.int32)
        for row, values in enumerate(ids):
            input_ids[row] = [*values, *[int(pad_ids[row].flat[0])] * (width - len(values))]
        decoder_ids = np.zeros((rows, 0), dtype=np.int32)  # decoder-only models have none
        return {
            "INPUT_ID": input_ids,
            "REQUEST_INPUT_LEN": np.array([[len(values)] for values in ids], dtype=np.int32),
            "DECODER_INPUT_ID": decoder_ids,
            "REQUEST_DECODER_INPUT_LEN": np.zeros((rows, 1), dtype=np.int32),
            "REQUEST_OUTPUT_LEN": tensors["REQUEST_OUTPUT_LEN"].astype(np.int32),
            "BAD_WORDS_IDS": self._words(tensors.get("BAD_WORDS_DICT"), rows, "bad_words", ()),
            "STOP_WORDS_IDS": self._words(tensors.get("STOP_WORDS_DICT"), rows, "stop_words", extra_ends),
            "EMBEDDING_BIAS": self._bias(tensors, rows),
            "OUT_END_ID": end_ids.astype(np.int32),
            "OUT_PAD_ID": pad_ids.astype(np.int32),
            "OUT_PROMPT_TABLE_EXTRA_IDS": np.zeros((rows, 0), dtype=np.uint64),
        }

    def _prompt(self, item: bytes) -> list[int]:
        text = self._text.decode_input(item, "text_input")
        encoder, limit = self._assets.encoder, self._max_input_tokens
        if limit and encoder.least_tokens(text) > limit:
            raise self._text.PromptError(f"the prompt has more than the {limit} tokens that fit; shorten it")
        ids: list[int] = encoder.prompt(text, add_special_tokens=self._adds_special)
        if limit and len(ids) > limit:
            raise self._text.PromptError(
                f"the prompt has {len(ids)} tokens, more than the {limit} that fit; shorten it"
            )
        return ids

    def _words(self, given: Array | None, rows: int, name: str, extra: Sequence[int]) -> Array:
        """int32 [rows, 2, n]: ids and end offsets of each row's words."""
        lists = []
        for row in range(rows):
            items = [] if given is None else given[row].reshape(-1)
            words = [self._text.decode_input(item, name) for item in items]
            lists.append(self._text.word_list([*map(self._word, words), *([id_] for id_ in extra)]))
        width = max(made.shape[1] for made in lists)
        for row, made in enumerate(lists):
            missing = width - made.shape[1]
            padding = np.array([[0] * missing, [-1] * missing], dtype=np.int32)
            lists[row] = np.concatenate([made, padding], axis=1)
        return np.stack(lists)

    def _word(self, text: str) -> list[int]:
        special = self._assets.special_id(text)
        ids: list[int] = self._assets.encoder.word(text) if special is None else [special]
        return ids

    def _bias(self, tensors: dict[str, Array], rows: int) -> Array:
        """float32 [rows, vocabulary], or [rows, 0] where no words are given."""
        words, weights = tensors.get("EMBEDDING_BIAS_WORDS"), tensors.get("EMBEDDING_BIAS_WEIGHTS")
        if words is None and weights is None:
            return np.zeros((rows, 0), dtype=np.float32)
        made = []
        for row in range(rows):
            items = [] if words is None else words[row].reshape(-1)
            ids = [self._word(self._text.decode_input(item, "embedding_bias_words")) for item in items]
            values = [] if weights is None else [float(value) for value in weights[row].reshape(-1)]
            made.append(self._text.embedding_bias(ids, values, self._vocab_size))
        return np.stack(made)
