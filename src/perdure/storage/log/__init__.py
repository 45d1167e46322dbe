"""One agent's log on any backend: the committer writes it, the reader reads it."""
