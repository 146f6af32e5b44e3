"""Whether a candidate answers as well as a baseline: on one's own requests, group by group, with a gate."""
