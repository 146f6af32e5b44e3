"""A repository of NVIDIA's templates, or a variation of one, written anew: what it says becomes a spec."""
