"""The OCR front: everything here is copied into the version folder of the front's model.

It runs in the Python backend's own interpreter (3.10 or later) with the standard library, numpy and
Pillow, and imports nothing else of this project. ``reader`` is the whole pipeline with the networks as a
parameter; ``model`` connects it to Triton.
"""
