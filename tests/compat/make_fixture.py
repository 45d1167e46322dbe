"""Makes the fixture of the current format: ``python tests/compat/make_fixture.py``.

Run once for each format, when it is released; the files are never made anew after that. Clock and
randomness are replaced, so that the same code makes the same file again.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import secrets
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import perdure
from perdure.core.values.plain_values import Plain
from perdure.core.values.state_hash import state_hash
from perdure.engine.dispatch.command import Command
from perdure.engine.dispatch.drive import Drive
from perdure.engine.functions import run as engine_run
from perdure.model import id_text
from perdure.storage.log.reader import LogReader

FIXTURES = Path(__file__).resolve().parent / "fixtures"
NAME = "format-2-dictionary"
"""`format-2` was made when no envelope named a dictionary yet."""

VALUES: dict[str, Plain] = {
    "nothing": None,
    "yes": True,
    "small": -7,
    "ints": [0, 127, 128, -32, -33, 255, 256, 65536, 2**32, 2**63, -(2**63), 2**64, -(2**90)],
    "floats": [0.5, -0.0, float("inf"), 1e300],
    "nan": float("nan"),
    "texts": ["", "é", "\U0001f600", "x" * 300, "\ud800 alone"],
    "bytes": b"\x00\xff" * 40,
    "naive": dt.datetime(2026, 8, 12, 14, 3, 22),
    "utc": dt.datetime(2026, 8, 12, 14, 3, 22, 1, tzinfo=dt.UTC),
    "zoned": dt.datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Vienna"), fold=1),
    "offset": dt.datetime(1969, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=-3, minutes=-30))),
    "date": dt.date(2026, 2, 28),
    "time": dt.time(23, 59, 59, 999_999, tzinfo=dt.UTC),
    "delta": dt.timedelta(days=-1, microseconds=5),
    "decimals": [Decimal("1.10"), Decimal("1E+3"), Decimal("-0"), Decimal("Infinity")],
    "uuid": UUID("12345678-1234-5678-1234-567812345678"),
    "tuple": (1, ("a", None), frozenset({2})),
    "set": {1, "1", (1, 2), dt.date(2026, 1, 1)},
    "frozen": frozenset({"b", "a"}),
    "keys": {1: "int", ("t", 2): "tuple", "s": {"z": 1, "a": 2}},
    "order": {"z": 1, "a": {"y": 2, "b": 3}},
}


@dataclass
class Order:
    """Version 2 of the shop's state; version 1 had `total` for `cents`."""

    cents: int = 0
    lines: list[str] = field(default_factory=list)


ORDER_1 = perdure.Schema(dict, id="order", version=1)
ORDER_2 = perdure.Schema(
    Order,
    id="order",
    version=(2, 1),
    migrations={1: lambda old: {"cents": old["total"] * 100, "lines": old["lines"]}},
)


class Died(BaseException):
    """Stands for the end of the process: nothing in a run may catch it."""


@perdure.step
def look_up(customer: str) -> dict[str, Any]:
    return {"customer": customer, "owes": Decimal("12.50")}


@perdure.step
def search(words: str) -> list[str]:
    raise ConnectionError(f"nobody answers for {words}")


@perdure.tool(on_crash="ask")
def refund(invoice: str, cents: int) -> str:
    if cents < 0:
        raise ValueError("a refund of less than nothing")
    if dying:
        raise Died
    return f"receipt for {invoice}, key {perdure.idempotency_key()[:8]}"


dying = False


@perdure.agent(dict[str, Any])
def support(run: perdure.Run[dict[str, Any]], question: str, cents: int) -> dict[str, Any]:
    found = look_up("c-7")
    with run.edit("bill known") as draft:
        draft["owes"] = found["owes"]
        draft["asked"] = [question]
    started, number, name = run.now(), run.random(), run.uuid()
    try:
        search("refund")
    except ConnectionError as error:
        with run.edit("search failed") as draft:
            draft["note"] = str(error)
    with suppress(LookupError), run.edit("an edit that fails") as draft:
        draft["gone"] = draft["not there"]
    receipt = refund("i-1", cents)
    with run.edit("nothing changes here"):
        pass
    return {"receipt": receipt, "started": started, "number": number, "name": name}


def write_values(store: perdure.Store) -> None:
    agent = store.agent("values")
    with agent.edit("every kind of value", tags=["all", "kinds"], trace="trace-1") as draft:
        draft.update(VALUES)
    with agent.edit("a lone surrogate as a key") as draft:
        draft["\udfff"] = 1


def write_ticket(store: perdure.Store) -> None:
    agent = store.agent("ticket-42")
    with agent.edit("begun", key="msg-1") as draft:
        draft["messages"] = [{"role": "user", "content": "Where is my money? " * 8}]
        draft["count"], draft["ratio"], draft["seen"] = 1, 0.5, {"a", "b"}
    with agent.edit("every op", group="g") as draft:
        draft["messages"].append({"role": "agent", "content": "One moment."})
        draft["messages"].extend([{"role": "user", "content": str(i)} for i in range(4)])
        perdure.increment(draft, "count", 2)
        perdure.increment(draft, "ratio", 0.25)
        draft["seen"].add("c")
        draft["seen"].discard("a")
    with agent.edit("more ops", group="g") as draft:
        perdure.move(draft["messages"], 0, 3)
        draft["messages"][1:3] = [{"role": "agent", "content": "spliced"}]
        del draft["ratio"]
        draft["count"] = 10**30
    agent.checkpoint("before refund", config={"model": "m", "t": 0.2}, dependencies=["msgspec"])
    state = agent.refresh()
    text = state["messages"][2]["content"]
    front = {"role": "user", "content": "\U0001f600" + text[:50] + "é" + text[50:]}
    agent.save({**state, "messages": [front, *state["messages"]]}, "a whole value")
    agent.save({**agent.state, "log": "x" * 100 + "\U0001f600" + "y" * 100}, "a long text")
    agent.save({**agent.state, "log": "x" * 100 + "\U0001f600é" + "y" * 100}, "a text splice")
    agent.undo()
    agent.redo()
    fork = agent.fork("what-if", at="before refund")
    with fork.edit("another way") as draft:
        draft["way"] = "other"
    agent.rollback("before refund")
    with agent.edit("went on from there") as draft:
        draft["way"] = "this"
    agent.fork("scratch")
    agent.delete_branch("scratch")
    agent.adopt("what-if")
    agent.undo()


def write_long(store: perdure.Store) -> None:
    agent = store.agent("long")
    with agent.edit("long lists") as draft:
        draft["before"] = 1
        draft["messages"] = [{"n": n} for n in range(2500)]
        draft["nested"] = [[0], {"deep": list(range(1100))}]
        draft["after"] = 2
    agent.checkpoint("long")
    with agent.edit("trimmed and appended") as draft:
        del draft["messages"][:30]
        draft["messages"].append({"n": 2500})
    agent.checkpoint("trimmed")
    with agent.edit("a change in the middle") as draft:
        draft["messages"][1500] = "changed"
    agent.checkpoint("cut")


def write_order(store: perdure.Store) -> None:
    old = store.agent("order", ORDER_1, initial={"total": 3, "lines": ["a"]})
    with old.edit("first version") as draft:
        draft["lines"].append("b")
    with store.agent("order", ORDER_2).edit("second version") as order:
        order.cents += 50


def write_runs(store: perdure.Store) -> None:
    global dying
    store.run(support, "shop", "Refund me", 500)
    with suppress(ValueError):
        store.options(key="bad").run(support, "shop", "Refund me", -1)
    for happens, dies in ((Died, True), (perdure.NeedsAttention, False)):
        dying = dies
        with suppress(happens):
            store.options(key="doubt").run(support, "shop", "Twice?", 700)
    handle = store.handle("shop/support/doubt")
    handle.settle("refund#1", not_done=True, by="an operator")
    store.options(key="doubt").run(support, "shop", "Twice?", 700)
    dying = True
    with suppress(Died):
        store.options(key="cancelled").run(support, "shop", "Never mind", 1)
    dying = False
    store.handle("shop/support/cancelled").cancel("not wanted any more")


def write_gone(store: perdure.Store) -> None:
    for word in ("first", "second"):
        agent = store.agent("gone")
        with agent.edit(word) as draft:
            draft["incarnation"] = word
        agent.checkpoint("kept")
        if word == "first":
            store.delete("gone")


@perdure.agent(dict[str, Any], version="7")
def asking(run: perdure.Run[dict[str, Any]], question: str) -> Any:
    if run.ask(question, timeout=dt.timedelta(days=9)):
        return run.again("Really?")
    run.progress("nearly there", 0.9)
    return run.wait_for("go", schema=int)


@perdure.agent(dict[str, Any])
def desk(run: perdure.Run[dict[str, Any]]) -> str:
    return run.options(key="main", queue="high").start(asking, "asked", "Refund?").id


def go_on(store: perdure.Store, question: str) -> None:
    """As a worker does: execute the run until it waits."""
    order = store.options(key="main").order(asking, "asked", (question,), {}, storable=True)
    command = Command(asking, order, (question,), {})
    store.runner.execute(Drive(store.runner._means, command))


def write_waiting(store: perdure.Store) -> None:
    handle = store.handle(store.run(desk, "desk"))
    go_on(store, "Refund?")
    handle.answer(True, by="anna")
    go_on(store, "Refund?")
    handle.answer(False, by="bob")
    handle.signal("go", "no number", key="1", by="bob")
    go_on(store, "Refund?")
    handle.signal("left", {"when": dt.datetime(2026, 1, 2)}, key="2", by="bob")


def expected(store: perdure.Store) -> dict[str, Any]:
    """What any reader must find."""
    backend = store.runner._context.backend
    logs = []
    for name in ("values", "ticket-42", "long", "order", "shop", "gone", "desk", "asked"):
        last = backend.agent(name)
        assert last is not None
        for incarnation in range(1, last.incarnation + 1):
            info = backend.agent(name, incarnation)
            assert info is not None
            reader = LogReader(backend, info)
            commits = [
                {
                    "seq": commit.seq,
                    "id": id_text(commit.id),
                    "kind": commit.cause.kind,
                    "branch": commit.branch,
                    "state": state_hash(reader.fold(commit.seq).state),
                }
                for commit in reader.commits()
            ]
            refs = {ref.name: [ref.kind, ref.seq, ref.deleted] for ref in backend.refs(info.no)}
            logs.append(
                {
                    "agent": name,
                    "incarnation": incarnation,
                    "deleted": info.deleted,
                    "commits": commits,
                    "snapshots": reader.snapshot_seqs(),
                    "refs": refs,
                }
            )
    runs = {run.id: [run.status, run.started, run.ended] for run in store.runs()}
    left = [[one.no, one.run, one.kind, one.name, one.key, one.who] for one in backend.inbox()]
    return {"logs": logs, "runs": runs, "inbox": left}


class FixedClock:
    """Stands for `datetime` where the engine asks for the time."""

    @staticmethod
    def now(zone: dt.tzinfo) -> dt.datetime:
        return dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=zone)


def make_repeatable() -> None:
    """Replace clock and randomness; for this process only."""
    chance = random.Random(1)
    ticks = iter(range(1_767_322_800_000_000_000, 2**63, 1_000_000))
    for module, name, stand_in in (
        (os, "urandom", chance.randbytes),
        (secrets, "token_hex", lambda size: chance.randbytes(size).hex()),
        (secrets, "randbits", chance.getrandbits),
        (time, "time_ns", lambda: next(ticks)),
        (engine_run, "datetime", FixedClock),
    ):
        setattr(module, name, stand_in)
    random.seed(1)


def make(folder: Path) -> None:
    path = folder / f"{NAME}.db"
    path.unlink(missing_ok=True)
    with perdure.open(path) as store:
        write_values(store)
        write_ticket(store)
        write_long(store)
        write_order(store)
        write_runs(store)
        write_gone(store)
        write_waiting(store)
        found = expected(store)
    for left in folder.glob(f"{NAME}.db-*"):
        left.rmdir() if left.is_dir() else left.unlink()
    (folder / f"{NAME}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    make_repeatable()
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else FIXTURES)
