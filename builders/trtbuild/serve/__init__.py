"""Running what was generated: the tritonserver process on this machine, and what it needs around it."""
