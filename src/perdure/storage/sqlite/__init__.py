"""The embedded backend: one SQLite file. Start reading at backend.py."""
