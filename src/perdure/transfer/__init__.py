"""Logs from store to store: followers, moves, restores, exported files."""
