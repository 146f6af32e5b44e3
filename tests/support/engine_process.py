"""Finds the engine's process of a model in a running server."""

from __future__ import annotations

import psutil

from trtbuild.serve.server import Server


def engine_process(server: Server, model: str) -> psutil.Process:
    """The one child of the model's stub."""
    for stub in psutil.Process(server.pid).children():
        if any(part.startswith(f"{model}_") for part in stub.cmdline()):
            (engine,) = stub.children()
            return engine
    raise LookupError(model)
