"""Waiting in an event loop for commits, heads and the store's own threads."""
