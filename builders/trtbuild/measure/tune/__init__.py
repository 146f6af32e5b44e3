"""A better configuration by trial: one parameter at a time, measured, kept if it helps."""
