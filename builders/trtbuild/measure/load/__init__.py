"""Load on a running server: what arrives when, what it asks for, and what became of each request."""
