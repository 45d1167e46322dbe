"""Threads: their checkpoints, writes, copies, removals and histories."""
