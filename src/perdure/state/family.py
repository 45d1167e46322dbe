"""What runs that started others, and those, are told of each other: through their inboxes, in the
commits that end them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from perdure.model import Commit, Message, RunInfo

CHILD = "child:"
"""A parent is told of a child's end by a signal of this name, followed by the child's id."""


def agent_of(run: str) -> str:
    """The name of the agent that a run is of, from its id."""
    return unquote(run.split("/")[0])


def to_parent(run: str, parent: str, end: Mapping[str, Any]) -> list[Message]:
    """What tells the run that started one, if any did, how it ended."""
    if not parent:
        return []
    return [Message(parent, agent_of(parent), "signal", CHILD + run, run, dict(end))]


def cancelled_to_parents(runs: Iterable[RunInfo]) -> list[Message]:
    """As `to_parent`, for runs that are being cancelled."""
    messages: list[Message] = []
    for run in runs:
        end = {"status": "cancelled", "value": None, "problem": run.problem}
        messages += to_parent(run.id, run.parent, end)
    return messages


def to_children(commits: Iterable[Commit], run: str) -> list[Message]:
    """What tells the runs that a run started, and that are to end with it, to do so."""
    started = (
        record["child"] for commit in commits for record in commit.records
        if record.get("run") == run and "child" in record
    )  # fmt: skip
    return [
        Message(str(child["run"]), str(child["agent"]), "cancel", "", "", f"with {run}")
        for child in started if not child["let_live"]
    ]  # fmt: skip
