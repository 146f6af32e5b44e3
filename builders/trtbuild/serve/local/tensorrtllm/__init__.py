"""NVIDIA's ``tensorrtllm`` contract served by OpenVINO GenAI on the CPU, as a Python-based Triton backend.

Two processes serve one instance. The stub (``model.py``) speaks Triton: it checks requests against the
contract, polls for cancellation and sends responses. The worker (``worker.py``) owns the engine: it admits
requests into the KV pool and steps the pipeline. They are apart because OpenVINO GenAI's binding of ``step``
holds the interpreter lock (2026.4.1, py_continuous_batching_pipeline.cpp): in one process no request could
arrive, be refused or be cancelled while a step runs, and responses could not be sent beside the next step.
"""
