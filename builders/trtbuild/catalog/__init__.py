"""Data about models, GPUs, formats, containers and pipelines, with the loaders beside it."""
