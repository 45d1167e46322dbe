"""Contestants that bring their own dependencies: each in a process, and an environment, of its own.

README.md says how they are set up and what makes the comparison fair. `process.py` is our side of
the pipe, `serving.py` theirs.
"""
