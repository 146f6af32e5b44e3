"""Options of tritonserver that every launch has, here and on a GPU host."""

from __future__ import annotations

# Threads of a Python instance for BLS calls and for responses that it sends. Our fronts send from one thread,
# and OCR calls its networks from at most 32; a pool of 256 costs a third more CPU a token in the server.
# (Models that hold a thread per BLS stream, such as NVIDIA's, need as many as streams: rule bls-threads.)
STUB_THREADS = 32
# Closed to clients: they change the server, read or write files, or map memory. Metadata, configuration and
# statistics stay open, because clients read them.
RESTRICTED = "model-repository,shared-memory,trace,logging"
