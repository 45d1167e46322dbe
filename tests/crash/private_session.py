"""All that Perdure makes files for, in one process: `python -m tests.crash.private_session FOLDER
UMASK`. Whoever watches its system calls sees how each file comes to be."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

import perdure
from perdure.cli.app import app
from perdure.integrations.langgraph import PerdureSaver, PerdureStore
from perdure.integrations.openai_agents import PerdureSession
from perdure.storage.sqlite.failed_sync import doubt, trust
from perdure.testing import kill_at_every_boundary
from tests.cli.lines import lines
from tests.cli.operator import fill, lookup

DOES_NOT_END = 1
"""The exit code where a command ended with what is no error of Perdure's."""


@perdure.agent(dict)
def ending(run: Any) -> None:
    """Ends the worker that runs it."""
    os.kill(os.getpid(), signal.SIGTERM)


@perdure.agent(dict)
def looking(run: Any) -> Any:
    return lookup("c-7")


def words_for(folder: Path, theirs: Path) -> dict[str, str]:
    """For `lines`; the store's file of the moment is `now.db`."""
    return {
        "agent": "ticket-42",
        "prefix": "ticket",
        "number": "3",
        "branch": "what-if",
        "at": "2",
        "a": "1",
        "b": "2",
        "name": "made",
        "dependency": "apsw",
        "to": "2",
        "run": "ticket-43",
        "status": "running",
        "of_agent": "ticket-43",
        "function": "support",
        "parent": "ticket-43",
        "queue": "default",
        "older": "1s",
        "newer": "1d",
        "value": "1",
        "question": "q",
        "by": "somebody",
        "key": "k",
        "words": "no longer needed",
        "step": "refund#1",
        "effects": "reuse",
        "call": "refund#1",
        "done": "1",
        "not_done": "1",
        "anchor": "0",
        "before": "2",
        "older_than": "1s",
        "output": str(folder / "out"),
        "until": "2",
        "file": str(folder / "export"),
        "source": str(folder / "now.db"),
        "target": str(folder / "to NUMBER.db"),
        "promote source": str(folder / "now.db"),
        "promote target": str(folder / "to follow.db"),
        "restore at": "2100-01-01T00:00:00Z",
        "import-langgraph source": str(theirs),
        "thread": "t",
        "types": "tests.cli.langgraph_graphs:Invoice",
    }


def copy(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    with open(target, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write(source.read_bytes())


def library(folder: Path) -> Path:
    """A store with all of its ways of keeping, and what lies beside it."""
    path = folder / "agents.db"
    fill(path)
    for durability in ("sync", "group", "os"):
        with perdure.open(path, durability=durability) as store:
            store.agent("large").save({"text": durability * 100_000}, "much")
            doubt(str(path))
            trust(str(path))
    with perdure.open(path, snapshots=perdure.SnapshotPolicy(every_commits=1)) as store:
        store.agent("large").save({}, "little")
        store.delete("large", purge=True)
        store.shrink()
        store.start(ending, "ends")
        perdure.Worker(store, [ending]).run()
        store.start(ending, "ends again")
    perdure.repair(path)
    kill_at_every_boundary(looking, folder=folder / "kills" / "at", by="exception", state={})
    return path


async def asynchronous(folder: Path) -> None:
    async with perdure.open_async(folder / "async.db") as store:
        await (await store.agent("a")).save({"n": 1}, "begun")


def adapters(folder: Path) -> None:
    with PerdureSaver.from_url(folder / "saver.db") as saver:
        saver.setup()
    with PerdureStore.from_url(folder / "kept.db") as kept:
        kept.put(("a",), "k", {"v": 1})
    session = PerdureSession("s", folder / "session.db")
    asyncio.run(session.add_items([{"role": "user", "content": "hello"}]))


def command_line(folder: Path, store: Path, theirs: Path) -> list[str]:
    """Each command; gives those that ended as none may."""
    type_in = CliRunner().invoke
    now = folder / "now.db"
    copy(store, now)
    type_in(app, ["replicate", str(now), str(folder / "to follow.db")])
    type_in(app, ["--store", str(store), "export", "ticket-42", "-o", str(folder / "export")])
    copy(store, now)
    type_in(app, ["--store", str(now), "worker", "tests.crash.private_session:ending"])
    wrong = []
    written = [["export", "--output", str(folder / "out"), "--", "ticket-42"]]
    for number, line in enumerate([*lines(words_for(folder, theirs), options=False), *written]):
        copy(store, now)
        given = [word.replace("NUMBER", str(number)) for word in line]
        done = type_in(app, given, env={"PERDURE_STORE": str(now)})
        if done.exit_code == DOES_NOT_END or not isinstance(done.exception, SystemExit | None):
            wrong.append(f"{given}: {done.output} {done.exception!r}")
    return wrong


def main() -> None:
    folder, umask, theirs = Path(sys.argv[1]), int(sys.argv[2], 8), Path(sys.argv[3])
    os.umask(umask)
    os.chdir(folder)
    store = library(folder)
    asyncio.run(asynchronous(folder))
    adapters(folder)
    wrong = command_line(folder, store, theirs)
    print("\n".join(wrong))
    print("done")


if __name__ == "__main__":
    main()
