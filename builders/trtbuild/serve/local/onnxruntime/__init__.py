"""Triton's ``onnxruntime`` backend for a machine without a GPU, as a Python-based backend.

It reads the same model configurations as the C++ backend (onnxruntime_backend, README "Model Config
Options"), batches what Triton's scheduler hands over in one session run, and imports numpy, onnxruntime and
Triton's Python utilities only.
"""
