"""A Triton in your test process: a real gRPC server with models that say what you tell them, as slowly and as
badly as you tell them.

>>> from tritonstream import Client
>>> from tritonstream.testing import FakeModel, FakeTriton
>>> with FakeTriton({"llm": FakeModel(reply=["Hel", "lo"])}) as server, Client(server.url) as client:
...     client.generate("llm", "Say hello").text
'Hello'
"""

from __future__ import annotations

from ._arrays import FakePage
from ._faults import Fault
from ._models import FakeModel
from ._served import Served
from ._server import FakeTriton

__all__ = ["FakeModel", "FakePage", "FakeTriton", "Fault", "Served"]
