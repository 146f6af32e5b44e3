"""Stands for TensorRT-LLM: the part of its LLM API that a generated model calls, over an echo."""
