"""`python -m tests.mutations`: break the code on purpose, in a copy, and see whether it is noticed.

A test that cannot fail proves nothing. Each mutation of the table is made in a copy of the tree;
the tests that it names must pass without it, and fail with it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.mutations.table import MUTATIONS, Mutation
from tests.source_tree import ROOT

COPIED = ("src", "tests", "docs", "examples", "bench")
FILES = ("pyproject.toml", "README.md", "Makefile", "CHANGELOG.md")
TIMEOUT_S = 600
FAILED = 1
"""Pytest's exit status where tests ran, and some failed."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("--only", default="", help="those that have this in their name")
    options = parser.parse_args()
    chosen = [mutation for mutation in MUTATIONS if options.only in mutation.name]
    missed = []
    with tempfile.TemporaryDirectory(prefix="perdure-mutations-") as place:
        tree = Path(place)
        _copy(tree)
        for mutation in chosen:
            began = time.monotonic()
            verdict = _try(tree, mutation)
            if verdict != "caught":
                missed.append(mutation)
            print(f"{verdict}: {mutation.name} ({time.monotonic() - began:.0f} s)", flush=True)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} caught")
    return 1 if missed or not chosen else 0


def _copy(tree: Path) -> None:
    skipped = shutil.ignore_patterns("__pycache__", ".*")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=skipped)
    for name in FILES:
        if (ROOT / name).is_file():
            shutil.copy(ROOT / name, tree / name)


def _try(tree: Path, mutation: Mutation) -> str:
    file = tree / mutation.path
    whole = file.read_text("utf-8")
    if whole.count(mutation.before) != 1:
        return "MISSED, as the code is no longer what the table says"
    if (status := _test(tree, mutation)) != 0:
        return f"MISSED, as the tests fail without it (pytest says {status})"
    file.write_text(whole.replace(mutation.before, mutation.after), "utf-8")
    try:
        status = _test(tree, mutation)
    finally:
        file.write_text(whole, "utf-8")
    return "caught" if status == FAILED else f"MISSED (pytest says {status})"


def _test(tree: Path, mutation: Mutation) -> int:
    command = [
        sys.executable,
        "-B",
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        *mutation.tests,
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tree / "src"), str(tree)))}
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return FAILED  # it hangs: that is noticed, too
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
