"""Removal on purpose: the old history of living agents, and the logs of deleted ones."""
