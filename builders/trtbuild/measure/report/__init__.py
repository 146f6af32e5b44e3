"""Runs as one HTML page: tables and vector plots, no script, no network, readable on paper."""
