"""A share of `make fuzz`, with the same inputs each time; and that the fuzzer sees what it must."""

from __future__ import annotations

import pytest

from tests.fuzz import watching
from tests.fuzz.inputs import corpus, pack, unpack
from tests.fuzz.mutating import mutate
from tests.fuzz.table import TARGETS, spec
from tests.fuzz.watching import Finding, Report, fuzz


def told(report: Report) -> str:
    return "\n\n".join(f"{one.kind} {one.where}\n{one.words}" for one in report.findings)


@pytest.mark.parametrize("name", TARGETS)
def test_foreign_bytes_raise_our_errors_alone(name: str) -> None:
    """The whole corpus, with each input that ever found a bug, and some thousand damaged ones."""
    assert corpus(name), "there is nothing to begin with"
    wanted = TARGETS[name][1]
    report = fuzz(spec(name), seed="1", executions=wanted)
    assert report.findings == [], told(report)
    assert report.executions >= wanted
    assert report.ends > 1, "all inputs came to the same end: nothing is reached"


def found(bug: str) -> list[Finding]:
    return fuzz(f"tests.fuzz.planted:{bug}", seed="1", executions=20_000, first=True).findings


@pytest.mark.parametrize(
    ("bug", "kind", "word"),
    [
        ("raises", "error", "KeyError"),
        ("allocates", "error", "MemoryError"),
        ("recurses", "error", "RecursionError"),
    ],
)
def test_a_planted_error_is_found(bug: str, kind: str, word: str) -> None:
    assert any(one.kind == kind and word in one.where for one in found(bug))


def test_a_planted_loop_is_found() -> None:
    """Its processor time is counted, so that a busy machine is no hang."""
    (first, *_) = found("loops")
    assert first.kind == "hang" and "_loops" in first.where + first.words


def test_a_planted_death_is_found() -> None:
    """The input that ended the process is known, and it is gone on without it."""
    findings = found("dies")
    assert {one.kind for one in findings} == {"died"} and all(one.parts for one in findings)


def test_a_planted_wait_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "STILL_S", 3.0)
    (first, *_) = found("waits")
    assert first.kind == "hang" and first.parts


def test_the_same_seed_gives_the_same_inputs() -> None:
    import random

    whole = [b"\x92\x01\xa1x", b'{"a": [1]}']
    one, two = ([mutate(whole, [whole], random.Random("7")) for _ in range(50)] for _ in range(2))
    assert one == two
    assert all(unpack(pack(parts)) == parts for parts in one)
