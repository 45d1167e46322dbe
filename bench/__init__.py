"""Benchmarks: each figure beside that of a contestant measured in the same run.

Start reading at `__main__.py`; a row of the table is one function in `rows/`.
"""
