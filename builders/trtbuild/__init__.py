"""Plans, builds, generates, serves and measures Triton model repositories for LLMs and vision models."""

__version__ = "0.1.0"
