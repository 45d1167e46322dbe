"""This Perdure beside another revision of itself, in one interleaved run."""
