"""A conversation that is undone, branched and asked about, in a process that is killed at every
other of its boundaries: who starts it again finds what was done, and does the rest once."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import perdure
from perdure import NotFound
from perdure.testing import Ending, run_until_waiting
from tests.engine.kills import kill_program_at_every_other_boundary


@perdure.tool(on_crash="retry")
def search(words: str) -> str:
    return f"about {words}"


@perdure.agent(dict)
def reply(run: perdure.Run[dict], words: str) -> str:
    with run.edit("user message") as draft:
        draft.setdefault("messages", []).append(words)
    found = search(words)
    with run.edit("answer") as draft:
        draft["messages"].append(found)
    return found


@perdure.agent(dict)
def assistant(run: perdure.Run[dict]) -> Any:
    words = run.wait_for("message", schema=str)
    with run.edit("message") as draft:
        draft.setdefault("messages", []).append(words)
    shown = {"words": words}
    if run.ask("Send?", data=shown, expires=3600, default=False):
        with run.edit("sent") as draft:
            draft.setdefault("sent", []).append(words)
    return run.again()


def test_messages_on_two_branches(tmp_path: Path) -> None:
    def program(folder: Path) -> Any:
        with perdure.open(folder / "agents.db") as store:
            store.options(key="m-1").run(reply, "a", "cats")
            store.options(key="m-2").run(reply, "a", "dogs")
            agent = store.agent("a")
            if "edited" not in {branch.name for branch in agent.branches()}:
                agent.fork("edited", before="a/reply/m-2")
            there = store.options(key="m-2", branch="edited")
            there.start(reply, "a", "birds")
            there.run(reply, "a", "birds")
            with suppress(NotFound):  # once it is undone, there is nothing left
                agent.undo(run="a/reply/m-2")
            return agent.refresh(), agent.branch("edited").state

    def check(end: Ending) -> None:
        kept = ["cats", "about cats"]
        edited = [*kept, "birds", "about birds"]
        assert end.result == ({"messages": kept}, {"messages": edited}), end
        with perdure.open(end.folder / "agents.db") as store:
            log = [*store.agent("a").log()]
            assert [one.cause.kind for one in log].count("undo") == 1
            assert store.handle("a/reply/m-2@edited").info.branch == "edited"
            assert not store._context.backend.inbox()
            store.agent("a").verify()

    assert kill_program_at_every_other_boundary(program, check, tmp_path) > 10


def test_one_run_for_all_messages(tmp_path: Path) -> None:
    def program(folder: Path) -> Any:
        with perdure.open(folder / "agents.db") as store:
            handle = store.start(assistant, "a")
            for words in ("cats", "dogs"):
                handle.signal("message", words, key=words)
                run_until_waiting(store, assistant, "a")
                for question in store.questions():
                    handle.answer(True, to=question)
                run_until_waiting(store, assistant, "a")
            agent = store.agent("a")
            if "dogs" in agent.state["messages"]:
                agent.undo(run=handle, turns=1)
            return agent.refresh()

    def check(end: Ending) -> None:
        assert end.result == {"messages": ["cats"], "sent": ["cats"]}, end
        with perdure.open(end.folder / "agents.db") as store:
            log = [*store.agent("a").log()]
            assert [one.cause.kind for one in log].count("undo") == 1
            assert store.handle("a/assistant/main").status == "waiting"
            store.agent("a").verify()

    assert kill_program_at_every_other_boundary(program, check, tmp_path) > 10
