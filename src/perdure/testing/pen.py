"""Writes to a backend directly, below everything that knows of states: for tests of backends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from perdure.core.format import chain
from perdure.core.format.chain import START, LogTail
from perdure.core.values import ops
from perdure.model import Cause, RunInfo
from perdure.storage.appending import Append, Appended, Refused, Riders
from perdure.storage.capabilities import WHOLE, Backend, Capability


class Pen:
    """Writes commits of one agent straight to a backend, remembering the log's end."""

    def __init__(self, backend: Backend, agent: str = "a", incarnation: int = 1) -> None:
        self.backend = backend
        self.agent = agent
        self.incarnation = incarnation
        self.no: int | None = None
        self.tail: LogTail = START
        self.heads: dict[str, int] = {}

    def make(self, branch: str = "main", value: Any = 0, **more: Any) -> tuple[Append, LogTail]:
        """Returns a commit linked to the end, not written yet."""
        beside = {name: more.pop(name) for name in [*more] if name in Riders.__struct_fields__}
        head = more.pop("expected", self.heads.get(branch))
        payload = chain.pack_payload([ops.Set((), value)], ())
        draft = chain.Draft(
            self.agent,
            self.incarnation,
            branch,
            (head,) if head else (),
            "dict",
            (1, 0),
            "x",
            more.get("epoch") or 0,
            Cause("edit"),
            payload,
        )
        header, tail = chain.link(draft, self.tail, self.backend.now())
        append = Append(
            self.agent,
            self.no,
            self.incarnation,
            tail.seq,
            header,
            payload.data,
            branch,
            head,
            riders=Riders(**beside),
            behind=self.tail,
            **more,
        )
        return append, tail

    def write(self, branch: str = "main", value: Any = 0, **more: Any) -> Append:
        append, tail = self.make(branch, value, **more)
        (outcome,) = self.backend.append([append])
        assert isinstance(outcome, Appended), outcome
        self.accept(append, tail, outcome)
        return append

    def accept(self, append: Append, tail: LogTail, outcome: Appended) -> None:
        self.no, self.tail = outcome.no, tail
        self.heads[append.branch] = append.seq

    def number(self) -> int:
        assert self.no is not None
        return self.no


def elsewhere(commit: bytes) -> LogTail:
    """Returns the end of another log, which has such a last commit."""
    return LogTail(0, commit, 0)


def refused(outcome: object) -> str:
    assert isinstance(outcome, Refused), outcome
    return outcome.why


def a_run(run_id: str, **more: Any) -> RunInfo:
    more.setdefault("status", "running")
    return RunInfo(run_id, "a", 1, "main", "f", "main", started=1, **more)


T = TypeVar("T")


def needs(*capabilities: Capability[Any]) -> Callable[[T], T]:
    """Marks a test, or all tests of a class, as needing capabilities: they are skipped for a
    backend without one of these."""

    def note(what: T) -> T:
        tests = vars(what).values() if isinstance(what, type) else [what]
        for test in tests:
            if callable(test):
                test.needs = (*getattr(test, "needs", ()), *capabilities)
        return what

    return note


class Contract:
    """The common part of a backend's contract.

    Attributes:
        durable: True if commits are there when it is opened again.
        capabilities: the capabilities of `WHOLE` that the backend declares; tests of the rest are
            skipped.
    """

    durable = True
    capabilities: frozenset[Capability[Any]] = WHOLE

    def open(self, place: Path) -> Backend:
        raise NotImplementedError

    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        return tmp_path

    @pytest.fixture(autouse=True)
    def _only_what_it_declares(self, request: pytest.FixtureRequest) -> None:
        for needed in getattr(request.function, "needs", ()):
            if needed not in self.capabilities:
                pytest.skip(f"the backend does not declare {needed.name}")

    @pytest.fixture
    def backend(self, place: Path) -> Any:
        backend = self.open(place)
        yield backend
        backend.close()

    @pytest.fixture
    def pen(self, backend: Backend) -> Pen:
        return Pen(backend)
