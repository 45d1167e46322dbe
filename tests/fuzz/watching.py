"""Watches a fuzzing process from outside: what it reports, and what it was at when it ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tests.fuzz.child import NOTE_BYTES, read_note
from tests.fuzz.inputs import unpack
from tests.fuzz.mutating import Parts
from tests.source_tree import ROOT

ENVIRONMENT = {**os.environ, "MALLOC_ARENA_MAX": "1", "PYTHONHASHSEED": "0"}
"""Memory is limited as address space: an arena for each thread would take much of it unused."""

STILL_S = 120.0
"""An input that waits for something that does not come uses no processor: its end is by the clock,
and so far off that a busy machine does not come to it."""


@dataclass(frozen=True)
class Finding:
    """Something that must not be. `kind`: ``error``, ``hang``, ``died``; `where`: the same for all
    inputs that find the same."""

    kind: str
    where: str
    words: str
    parts: Parts


@dataclass
class Report:
    """`ends`: how many different ends inputs came to; see `Fuzzer`."""

    executions: int = 0
    ends: int = 0
    findings: list[Finding] = field(default_factory=list)


def fuzz(
    spec: str,
    *,
    seed: str = "1",
    executions: int = 1 << 60,
    seconds: float = 1e9,
    first: bool = False,
) -> Report:
    """Fuzz a target in a process of its own; in another one, once an input has ended that.

    Args:
        first: no further than to the first finding.
    """
    report = Report()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="perdure-fuzz-") as place:
        while report.executions < executions and time.monotonic() - began < seconds:
            before = report.executions
            left = max(1.0, seconds - (time.monotonic() - began))
            todo = executions - report.executions
            options = ["--seed", f"{seed}.{report.executions}", "--executions", str(todo)]
            options += ["--seconds", str(left), *(["--first"] if first else [])]
            ended = _child([spec, *options], Path(place), report) or (first and report.findings)
            if ended or report.executions == before:  # it did not come to its first input
                break
    known: dict[str, Finding] = {}
    for finding in report.findings:
        known.setdefault(finding.where, finding)
    report.findings = list(known.values())
    return report


def _child(options: Sequence[str], place: Path, report: Report) -> bool:
    """Whether it came to its own end."""
    note = place / "note"
    with note.open("wb") as file:
        file.truncate(NOTE_BYTES)
    command = [sys.executable, "-m", "tests.fuzz.child", "--note", str(note), *options]
    with (
        (place / "stderr").open("w+b") as errors,
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        ) as child,
    ):
        assert child.stdout is not None
        said: list[bytes] = []
        reader = threading.Thread(target=_read, args=(child.stdout, said))
        reader.start()
        stood_still = _wait(child, note)
        reader.join()
        errors.seek(0)
        words = errors.read()[-8000:].decode(errors="replace")
    count, parts = read_note(note)
    ended = False
    for line in said:
        ended = _take(json.loads(line), report) or ended
    if not ended:
        report.executions += count
        report.findings.append(_finding(child.returncode, stood_still, words, parts))
    return ended


def _read(stream: IO[bytes], said: list[bytes]) -> None:
    said.extend(stream)


def _wait(child: subprocess.Popen[bytes], note: Path) -> bool:
    """Until it ends, or is ended because nothing moved for long."""
    count, since = -1, time.monotonic()
    while child.poll() is None:
        try:
            child.wait(0.2)
        except subprocess.TimeoutExpired:
            now, _ = read_note_count(note), None
            if now != count:
                count, since = now, time.monotonic()
            elif time.monotonic() - since > STILL_S:
                child.kill()
                return True
    return False


def read_note_count(note: Path) -> int:
    with note.open("rb") as file:
        return int.from_bytes(file.read(8), "little")


def _take(line: dict[str, object], report: Report) -> bool:
    if line["kind"] == "end":
        report.executions += int(str(line["executions"]))
        report.ends = max(report.ends, int(str(line["ends"])))
        return True
    parts = unpack(bytes.fromhex(str(line["parts"])))
    report.findings.append(
        Finding(str(line["kind"]), str(line["where"]), str(line["words"]), parts)
    )
    return False


def _finding(status: int, stood_still: bool, words: str, parts: Parts) -> Finding:
    if stood_still:
        return Finding("hang", "it waited for ever", words, parts)
    if status == -signal.SIGPROF:
        stack = [line.strip() for line in words.splitlines() if line.startswith('  File "')]
        return Finding("hang", f"it computed for ever: {stack[:2]}", words, parts)
    return Finding("died", f"status {status}: {words[-200:]}", words, parts)
