"""Last step of the classic ensemble: ids to text, with NVIDIA's tensor names.

Parameters of config.pbtxt (string values):

    text_model           name of the text front, whose folder beside this model's holds the tokenizer and the
                         text package; required
    skip_special_tokens  whether special tokens give no text. Default true

The step has no state, so that it cannot hold the first bytes of a character until the last ones come: where
a streamed response ends within a character, its bytes become U+FFFD here. For the same reason it cannot know
which response is the first, and keeps the space with which a SentencePiece text begins. The text front does
both right; streaming clients should call it.
"""

from __future__ import annotations

import importlib
import json
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

Array = npt.NDArray[Any]


class TritonPythonModel:
    """Triton's entry. Requests may be batches, and each row of several beams."""

    def initialize(self, args: dict[str, str]) -> None:
        """Builds the table of bytes from the tokenizer in the text front's folder."""
        given = json.loads(args["model_config"]).get("parameters") or {}
        values = {key: entry["string_value"] for key, entry in given.items()}
        folder = Path(args["model_repository"]).parent / values["text_model"] / "1"
        sys.path.insert(0, str(folder))
        tritontext = importlib.import_module("tritontext")
        skips = values.get("skip_special_tokens", "true").lower() in ("true", "1")
        text = (folder / "tokenizer" / "tokenizer.json").read_text(encoding="utf-8")
        self._table = tritontext.TokenBytes.from_json(text, skip_special_tokens=skips)

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Returns one response a request: OUTPUT STRING [rows, beams]."""
        return [self._respond(request) for request in requests]

    def _respond(self, request: Any) -> Any:
        try:
            tensors = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
            output = self._decode(tensors["TOKENS_BATCH"], tensors["SEQUENCE_LENGTH"])
        except Exception as exc:  # of this request alone
            error = pb_utils.TritonError(told("decoding the tokens failed", exc, pb_utils))
            return pb_utils.InferenceResponse(output_tensors=[], error=error)
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", output)])

    def _decode(self, tokens: Array, lengths: Array) -> Array:
        """``tokens`` int32 [rows, beams, n], ``lengths`` int32 [rows, beams] → texts [rows, beams]."""
        rows, beams = tokens.shape[:2]
        made = np.empty((rows, beams), dtype=np.object_)
        for row in range(rows):
            for beam in range(beams):
                ids = tokens[row, beam, : max(0, int(lengths[row].flat[beam]))].tolist()
                made[row, beam] = self._table.join(ids).decode("utf-8", "replace").encode()
        return made
