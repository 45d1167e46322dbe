"""Backends, and the two sides of the log on them: the committer writes, the reader reads."""
