"""Chats from the shell: questions of all agents, undo of a run, branches from before a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.testing import run_until_waiting
from tests.cli.operator import Operator


@perdure.agent(dict)
def reply(run: perdure.Run[dict], words: str) -> None:
    for who in ("user", "assistant"):
        with run.edit(f"{who} message") as draft:
            draft.setdefault("messages", []).append(f"{who}: {words}")


@perdure.agent(dict)
def refund(run: perdure.Run[dict], cents: int) -> str:
    data = {"customer": "c-7", "cents": cents}
    return "yes" if run.ask("Refund?", data=data, expires=86_400) else "no"


@pytest.fixture
def chats(tmp_path: Path) -> Operator:
    operator = Operator(tmp_path / "agents.db")
    with perdure.open(operator.path) as store:
        for key in ("m-1", "m-2"):
            store.options(key=key).run(reply, "chat", key)
        for number in range(3):
            run_until_waiting(store, refund, f"ticket-{number}", number * 100)
    return operator


def state(operator: Operator, branch: str = "main") -> Any:
    with perdure.open(operator.path) as store:
        return store.agent("chat", branch=branch).state


def test_what_runs_ask_is_listed_with_what_it_shows(chats: Operator) -> None:
    shown = chats.see("questions")
    assert "Refund?  wants yes or no" in shown and ", until 20" in shown
    assert "cents: 200" in shown
    listed = chats.json("questions")
    assert [(one["agent"], one["data"]["cents"]) for one in listed] == [
        ("ticket-0", 0),
        ("ticket-1", 100),
        ("ticket-2", 200),
    ]
    assert "perdure answer" in shown and listed[2]["name"] in shown
    assert len(chats.json("questions", "ticket-1")) == 1
    first = chats.see("questions", "-n", "1")
    assert "cents: 100" not in first and "--after ticket-0/refund/main" in first
    assert [one["agent"] for one in chats.json("questions", "--after", listed[0]["run"])] == [
        "ticket-1",
        "ticket-2",
    ]
    assert "nobody is asked anything" in chats.see("questions", "chat")
    assert "cents: 200" in chats.see("run", "show", "ticket-2")


def test_an_answer_says_what_was_seen(chats: Operator) -> None:
    (asked,) = chats.json("answer", "ticket-1")
    code, words = chats.refused("answer", "ticket-1", "yes")
    assert code == 4 and f"--to '{asked['name']}'" in words
    assert "was answered: True" in chats.see("answer", "ticket-1", "yes", "--to", asked["name"])


def test_a_message_is_taken_back_or_sent_again_on_a_branch(
    chats: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chats.see("fork", "chat", "edited", "--before", "chat/reply/m-2")
    chats.see("undo", "chat", "--run", "chat/reply/m-2", "--turns", "1")
    kept = {"messages": ["user: m-1", "assistant: m-1"]}
    assert state(chats) == state(chats, "edited") == kept
    assert chats.refused("undo", "chat", "--turns", "1")[0] == 2
    assert chats.refused("fork", "chat", "x", "--at", "1", "--before", "chat/reply/m-1")[0] == 2
    (tmp_path / "chat_jobs.py").write_text("from tests.cli.test_conversations import reply\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "chat_jobs", raising=False)
    said = chats.json("start", "chat_jobs:reply", "chat", "again", "--key", "m-2", "-b", "edited")
    assert said["run"] == "chat/reply/m-2@edited"
