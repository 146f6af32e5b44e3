"""The last step of a vision pipeline: everything here is copied into the version folder of its model.

It runs in the Python backend's own interpreter (3.10 or later) with the standard library, numpy and Pillow.
``answers`` is all of it without Triton.
"""
