"""What the text library refuses, as types.

TextError (a ValueError)
├── TokenizerError   a tokenizer that cannot be read or decoded exactly
├── TemplateError    a chat template that is missing, broken, refused the messages, or cost too much
└── PromptError      an input of a request: not UTF-8, empty, or of the wrong shape
"""

from __future__ import annotations


class TextError(ValueError):
    """Base of every refusal; its text is one line that can be shown to a caller."""


class TokenizerError(TextError):
    """A tokenizer that cannot be read, or whose decoding cannot be reproduced exactly."""


class TemplateError(TextError):
    """A chat template that is missing, broken, refused the messages, or cost too much."""


class PromptError(TextError):
    """An input of a request that is not UTF-8, empty, or of the wrong shape."""
