"""Numbers that hold where a user gives none: for the spec, the options' help, and simulated loads.

Free of imports, because `trtbuild --help` shows these numbers and must not wait for pydantic.
"""

from __future__ import annotations

MAX_INPUT_TOKENS = 2048  # the longest prompt
MAX_OUTPUT_TOKENS = 512  # the longest answer
USUAL_INPUT_TOKENS = 500  # of a prompt on average, where a load is simulated
USUAL_OUTPUT_TOKENS = 200  # of an answer on average
LENGTH_VARIATION = 0.5  # standard deviation of these lengths over their mean
CALIBRATION_TOKENS = 512  # longest part of a text that weights are calibrated on
