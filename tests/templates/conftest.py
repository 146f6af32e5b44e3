"""Hypothesis without a deadline: the first example loads a tokenizer, and machines are busy."""

from hypothesis import settings

settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
