"""Runs that were measured: every one is kept."""
