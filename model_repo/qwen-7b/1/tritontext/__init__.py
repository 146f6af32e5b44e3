"""Text of a language model, exactly: prompts to ids, ids to text as they come, chat templates, stop strings.

Pure Python over the standard library, numpy, tokenizers and Jinja, without any knowledge of servers. The
repository writer copies this folder into each text front as ``tritontext``, so its imports are relative.
"""

from __future__ import annotations

from .assets import TextAssets, load_tokenizer
from .detokenize import TextStream
from .encoding import Encoder, embedding_bias, word_list
from .errors import PromptError, TemplateError, TextError, TokenizerError
from .stops import StopMatcher, check_stops
from .template import ChatTemplate, check_messages
from .tokenbytes import TokenBytes
from .utf8 import Utf8Stream, decode_input

__all__ = [
    "ChatTemplate",
    "Encoder",
    "PromptError",
    "StopMatcher",
    "TemplateError",
    "TextAssets",
    "TextError",
    "TextStream",
    "TokenBytes",
    "TokenizerError",
    "Utf8Stream",
    "check_messages",
    "check_stops",
    "decode_input",
    "embedding_bias",
    "load_tokenizer",
    "word_list",
]
