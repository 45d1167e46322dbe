"""What is done while a system call fails, and what must be so afterwards.

Each change is a token that is appended to a list in an agent's state, so that it is known of each
afterwards whether it is there, and how often.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

import perdure
from perdure.errors import NeedsAttention, StoreUnavailable
from perdure.replication import following
from perdure.store import Store
from tests.errnos.said import Said

TRIES = 3
"""How often a call is made that says that it may be made again."""

Work = Callable[[Path, Said], None]


class Workload(Struct, frozen=True):
    """`begin` makes what is there before; `work` is done in a process whose system calls fail."""

    name: str
    work: Work
    begin: Callable[[Path], None]
    skips: tuple[str, ...] = ()
    """Calls that are not ours: one that is lost is lost to whoever made it."""


urls: dict[Path, str] = {}
"""Of stores that are no file, by the folder that stands for them."""


def path_in(folder: Path) -> str:
    return urls.get(folder) or str(folder / "store.db")


def _append(draft: Any, token: str) -> None:
    draft.setdefault("tokens", []).append(token)


def add(store: Store, said: Said, token: str, *, size: int = 0) -> None:
    """Add a token under a key, again where that may be done."""
    for number in range(TRIES):
        said.say("try", token)
        try:
            with store.agent("a").edit("add", key=token) as draft:
                _append(draft, token)
                if size:
                    draft["text"] = token * size
        except StoreUnavailable as error:
            said.say(error.outcome, token)
            if number == TRIES - 1:
                raise
        else:
            said.say("done", token)
            return


def begin_with_some(folder: Path) -> None:
    with perdure.open(path_in(folder)) as store:
        for number in range(5):
            with store.agent("a").edit("before") as draft:
                _append(draft, f"before {number}")
        store.agent("a").checkpoint("begun")


def begin_with_nothing(folder: Path) -> None:
    """The file does not exist."""


def new(folder: Path, said: Said) -> None:
    with perdure.open(path_in(folder)) as store:
        add(store, said, "first")
        add(store, said, "second")


def edits(folder: Path, said: Said) -> None:
    with perdure.open(path_in(folder)) as store:
        add(store, said, "one")
        add(store, said, "large", size=8_000)
        agent = store.agent("a")
        agent.checkpoint("here")
        agent.fork("other", at="begun")
        add(store, said, "two")
        agent.refresh()
        said.say("unknown", "two")
        agent.undo()
        agent.redo()
        add(store, said, "three")


def loose(folder: Path, said: Said) -> None:
    """With the durability that syncs now and then."""
    with perdure.open(path_in(folder), durability="group") as store:
        for number in range(4):
            add(store, said, f"loose {number}")
        store.flush()


def reading(folder: Path, said: Said) -> None:
    with perdure.open(path_in(folder)) as store:
        agent = store.agent("a")
        assert len(agent.state["tokens"]) == 5
        assert len(agent.at("begun").state["tokens"]) == 5
        assert len(list(agent.log())) == 7, "the first commit, the edits, the checkpoint"
        agent.verify()
        agent.branches()
        assert len(store.agents()) == 1 and store.runs() == []
        store.sizes()
        store.check_pages()
        found = store.find("a")
        assert found is not None and len(list(store.export_log(found))) == 7


def upkeep(folder: Path, said: Said) -> None:
    """Snapshots, and the room of what was removed."""
    policy = perdure.SnapshotPolicy(every_commits=2)
    with perdure.open(path_in(folder), snapshots=policy) as store:
        for number in range(4):
            add(store, said, f"kept {number}", size=1_000)
        store.agent("b").save({"x": "y" * 1_000}, "to go")
        store.delete("b", purge=True)
        store.agent("a").trim(3)
        store.shrink()
        add(store, said, "after")


_said: Said | None = None


def _hear(what: str, detail: Any = None) -> None:
    if _said is not None:
        _said.say(what, detail)


@perdure.step
def think(text: str) -> str:
    return text.upper()


@perdure.tool(on_crash="fail")
def pay(cents: int) -> int:
    _hear("paid", cents)
    return cents


@perdure.agent(dict)
def act(run: perdure.Run[Any]) -> int:
    think("one")
    with run.edit("in the run") as draft:
        _append(draft, "of the run")
    paid = pay(100)
    think("two")
    run.wait_for("go")
    return paid


def running(folder: Path, said: Said) -> None:
    global _said
    _said = said
    with perdure.open(path_in(folder)) as store:
        handle = store.start(act, "runner")
        handle.signal("go", key="once")
        for _ in range(TRIES):
            with suppress(StoreUnavailable):
                said.say("result", store.run(act, "runner"))
                break
        handle.why()
        handle.effects()


@perdure.step
async def fetch(number: int) -> int:
    return number


@perdure.agent(dict)
async def gather(run: perdure.AsyncRun[Any]) -> int:
    return sum(await asyncio.gather(*(fetch(number) for number in range(3))))


def asynchronous(folder: Path, said: Said) -> None:
    async def main() -> None:
        async with perdure.open_async(path_in(folder)) as store:
            agent = await store.agent("a")
            said.say("try", "async")
            async with agent.edit("add") as draft:
                _append(draft, "async")
            said.say("done", "async")
            assert await store.run(gather, "g") == 3

    asyncio.run(main())


def copying(folder: Path, said: Said) -> None:
    """A follower is made, and what `perdure export` writes is taken in."""
    with following(path_in(folder), str(folder / "copy.db")) as follower:
        follower.step()
    with perdure.open(path_in(folder)) as store:
        found = store.find("a")
        assert found is not None
        with perdure.open(str(folder / "other.db")) as other:
            other.import_log(store.export_log(found))


# An event loop makes, reads and closes a socket of its own, by which it wakes itself, and ignores
# that it could not.
LOOP = ("sendto", "recvfrom", "ioctl", "close", "socket")

WORKLOADS = {
    work.__name__: Workload(work.__name__, work, begin, LOOP if work is asynchronous else ())
    for work, begin in (
        (new, begin_with_nothing),
        (edits, begin_with_some),
        (loose, begin_with_some),
        (reading, begin_with_some),
        (upkeep, begin_with_some),
        (running, begin_with_some),
        (asynchronous, begin_with_some),
        (copying, begin_with_some),
    )
}


def check(folder: Path, heard: list[tuple[str, Any]]) -> None:
    """In a process whose system calls work: what it was told is so, and everything goes on."""
    with perdure.open(path_in(folder)) as store:
        store.check_pages()
        for info in store.agents():
            store.agent_of(info).verify()
        agent = store.agent("a")
        there = agent.state.get("tokens", []) if agent.exists else []
        assert len(there) == len(set(there)), f"twice: {there}"
        outcomes: dict[str, list[str]] = {}
        for what, token in heard:
            if what in ("done", "unknown", "not_done"):
                outcomes.setdefault(token, []).append(what)
        for token, said in outcomes.items():
            if said[-1] == "done":
                assert token in there, f"{token!r} was acknowledged, and is lost"
            if {*said} == {"not_done"}:
                assert token not in there, f"{token!r} was said not to be there"
        with agent.edit("it goes on") as draft:
            draft["went on"] = True
        _check_run(store, heard)


def _check_run(store: Store, heard: list[tuple[str, Any]]) -> None:
    paid = sum(what == "paid" for what, _ in heard)
    result = [detail for what, detail in heard if what == "result"]
    assert paid <= 1, "a tool was called twice, and nobody decided that"
    assert result in ([], [100])
    if not store.runs(agent="runner"):
        assert not paid
        return
    handle = store.handle("runner/act/main")
    if handle.info.status != "done":
        assert not result, f"it had a result, and is {handle.info.status}"
        handle.signal("go", key="once")
        try:
            result = [store.run(act, "runner")]
        except (perdure.InDoubt, NeedsAttention):
            # The intent is in the log; that nobody came to make the call is not.
            assert any(effect.state in ("in doubt", "failed") for effect in handle.effects())
            return
    assert store.run(act, "runner") == 100
    assert store.agent("runner").state == {"tokens": ["of the run"]}
