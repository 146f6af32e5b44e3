"""Backends for machines without a GPU: each folder here becomes a backend directory of the local server.

They are Python-based backends of Triton, so a folder holds plain files that the server's stub loads. They
import nothing of trtbuild.
"""
