"""NVIDIA's ``tensorrtllm`` contract served by OpenVINO GenAI on the CPU, as a Python-based Triton backend.

Two processes serve one instance. The stub (``model.py``) speaks Triton: it checks requests against the
contract, polls for cancellation and sends responses. The worker (``worker.py``) owns the engine: it admits
requests into the KV pool and steps the pipeline. They are apart because OpenVINO GenAI's binding of ``step``
holds the interpreter lock (2026.4.1, py_continuous_batching_pipeline.cpp): in one process no request could
arrive, be refused or be cancelled while a step runs, and responses could not be sent beside the next step.

Measured on two cores that server, client and engine share (SmolLM2-135M, scripts/bench-engine), as
ratios of tokens/s at 1, 8 and 32 streams:

    through the server, over the engine alone                             0.91  0.92  0.90
    the next step waits until responses are sent, over not waiting        0.87  0.83  0.84
    one engine thread, over one a core                                    0.84  0.74  0.68
    unpinned engine threads, over pinned                                  0.97  0.95  0.99
"""
