"""Measurements: load on a running server, baselines beside it, and what a run says."""
