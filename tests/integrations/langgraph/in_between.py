"""Another acts on a thread between two calls of the store that one call makes: what comes of it is
as if one had come after the other.

Both act on savers of their own, as two processes do.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from typing import Any

from perdure.errors import PerdureError
from perdure.integrations.langgraph import PerdureSaver
from tests.integrations.langgraph.checkpoints import checkpoint, config

SPACES = ("", "sub:1", "sub:2")
CALLS = (
    "agent",
    "agents",
    "append",
    "key",
    "keys",
    "manifest",
    "read",
    "ref",
    "refs",
    "runs",
    "snapshot",
    "trim",
)
"""Of a backend, before which another may act."""

Act = Callable[[PerdureSaver], object]
Shown = Mapping[tuple[str, ...], Any]


class Between:
    """Where another acts: before a call of a backend by its number; 0: nowhere."""

    def __init__(self, number: int, acts: Callable[[], object]) -> None:
        self.acted = False
        self._number = number
        self._acts = acts

    @contextmanager
    def calls_of(self, saver: PerdureSaver) -> Iterator[None]:
        backend: Any = saver.store._context.backend
        for name in CALLS:
            setattr(backend, name, self._counted(getattr(backend, name)))
        try:
            yield
        finally:
            for name in CALLS:
                delattr(backend, name)

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **more: Any) -> Any:
            self._number -= 1
            if self._number == 0:
                self.acted = True
                self._acts()
            return call(*args, **more)

        return counted


class History:
    """What was done to the thread ``t``, by chance, and the same for each that is made of a seed;
    and what may be done to it next.

    Attributes:
        made: ids of the checkpoints of each namespace. `end`: of its log.
    """

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._numbers = count(1)
        self.made: dict[str, list[str]] = {space: [] for space in SPACES}
        self.end = 0

    def fill(self, saver: PerdureSaver) -> None:
        for _ in range(self._chance.randrange(3, 14)):
            tried(saver, self._before())
        self.end = end_of(saver)

    def _before(self) -> Act:
        roll, number = self._chance.random(), next(self._numbers)
        if roll < 0.62 or not any(self.made.values()):
            return self._put(self._chance.choice(["", *SPACES]), self._chance.random() < 0.7)
        if roll < 0.8:
            return self._writes(number)
        if roll < 0.88:
            return self._rollback()
        if roll < 0.93:
            return self._removal()
        if roll < 0.96:
            return lambda saver: agent_of(saver).checkpoint(f"named {number}")
        return lambda saver: saver.copy_thread("t", f"copy {number}")

    def act(self) -> tuple[str, Act]:
        number = next(self._numbers)
        acts: dict[str, Callable[[], Act]] = {
            "put": lambda: self._put("", on_the_line=True),
            "fork": lambda: self._put("", on_the_line=False),
            "put in a subgraph": lambda: self._put("sub:1", on_the_line=True),
            "writes": lambda: self._writes(number),
            "rollback": self._rollback,
            "runs": self._removal,
            "prune": lambda: lambda saver: saver.prune(["t"]),
            "delete": lambda: lambda saver: saver.delete_thread("t"),
            "copy": lambda: lambda saver: saver.copy_thread("t", "u"),
            "checkpoint": lambda: lambda saver: agent_of(saver).checkpoint("new"),
            "branch": self._branch,
            "trim": self._trim,
        }
        name = self._chance.choice(["trim", "trim", "rollback", *acts])
        return name, acts[name]()

    def _put(self, space: str, on_the_line: bool) -> Act:
        chance, number, ids = self._chance, next(self._numbers), self.made[space]
        parent = (ids[-1] if on_the_line else chance.choice(ids)) if ids else None
        values = {"n": number, "log": [*range(number % 7)]}
        said: Any = {
            "source": chance.choice(["loop", "update", "fork"]),
            "step": number,
            "parents": {},
            "run_id": chance.choice("ab"),
        }
        made = checkpoint(values, number, f"1f000000-0000-6{number:03x}-8000-000000000000")
        if space and (outer := self.made[""]):
            said["parents"][""] = outer[-1]

        def put(saver: PerdureSaver) -> None:
            saver.put(config(ns=space, checkpoint_id=parent), made, said, {})
            if made["id"] not in ids:
                ids.append(made["id"])

        return put

    def _writes(self, number: int) -> Act:
        space, ids = self._chance.choice([one for one in self.made.items() if one[1]])
        at = config(ns=space, checkpoint_id=self._chance.choice(ids[-3:]))
        return lambda saver: saver.put_writes(at, [("log", number)], f"task {number}")

    def _rollback(self) -> Act:
        part = self._chance.random()

        def back(saver: PerdureSaver) -> None:
            agent_of(saver).rollback(1 + int(part * (self.end or end_of(saver))))

        return back

    def _removal(self) -> Act:
        run = self._chance.choice("ab")
        return lambda saver: saver.delete_for_runs([run])

    def _branch(self) -> Act:
        at = self._chance.randrange(1, self.end + 1)
        return lambda saver: agent_of(saver).fork("side", at=at)

    def _trim(self) -> Act:
        some = self._chance.randrange(1, self.end + 1)
        before: Any = self._chance.choice([timedelta(0), some])
        return lambda saver: saver.trim(before, ["t"])


def agent_of(saver: PerdureSaver) -> Any:
    info = saver.store.find("t")
    if info is None:
        raise ValueError("nothing was put")
    return saver.store.agent_of(info)


def end_of(saver: PerdureSaver) -> int:
    log = agent_of(saver).log(all_branches=True) if saver.store.find("t") else ()
    return max((commit.seq for commit in log), default=1)


def tried(saver: PerdureSaver, act: Act) -> bool:
    """Act; whether that was taken."""
    try:
        act(saver)
    except (PerdureError, ValueError):
        return False
    return True


def shown(saver: PerdureSaver) -> Shown:
    """All checkpoints of all threads, and the latest ones; the logs are whole."""
    found: dict[tuple[str, ...], Any] = {}
    for info in saver.store.agents():
        saver.store.agent_of(info).verify()
        for space in SPACES:
            latest = saver.get_tuple(config(info.name, ns=space))
            found[info.name, space] = latest and latest.config
        for one in saver.list({"configurable": {"thread_id": info.name}}):
            at = one.config["configurable"]
            found[info.name, at["checkpoint_ns"], at["checkpoint_id"]] = (
                one.parent_config,
                one.metadata,
                one.checkpoint["channel_values"],
                sorted(one.pending_writes or []),
            )
    return found
