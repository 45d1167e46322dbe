"""Threads: agents whose states are a framework's checkpoints. They go back only as a whole.

A checkpoint's pending waits, and the writes of its tasks, are not part of the state: undoing a
change of the state alone would keep an approval that was given later. And an edit is not a
checkpoint: the adapter would neither show it nor continue from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NoReturn

from perdure.core.format.records import CheckpointRecord
from perdure.errors import Conflict, NotFound
from perdure.model import MAIN, Commit
from perdure.storage.log.reader import LogReader
from perdure.storage.retention import MOVES, is_moment
from perdure.system import shell

_ENDING = ".thread"
"""The end of the ids of their schemas. The framework's name stands before it."""

INNER = "ns:"
"""The beginning of branches that are lines of subgraphs."""

_LINE = re.compile(rf"{MAIN}(?:~[0-9]+)?|{INNER}.*", re.DOTALL)


def is_thread(schema_id: str) -> bool:
    """True if the agents of a schema are threads."""
    return schema_id.endswith(_ENDING)


def is_line(branch: str) -> bool:
    """True if a branch has the name of a thread's line."""
    return _LINE.fullmatch(branch) is not None


def refuse_edit(name: str, branch: str) -> NoReturn:
    """Raises Conflict for a branch of a thread, whichever it is: another one may be adopted."""
    raise Conflict(
        "cannot edit: the state of a thread is that of its checkpoints",
        target=_target(name, branch),
        hint="its framework makes a checkpoint with other values (LangGraph: "
        "`graph.update_state(config, values)`)",
    )


def refuse_undo(reader: LogReader, branch: str, seq: int, path: Iterable[Commit]) -> None:
    """Raises Conflict for a branch of a thread.

    Args:
        seq: the commit that is to be undone; `path`: the commits before it, newest first.
    """
    if not of_a_thread(reader):
        return
    before = next(
        (one.seq for one in path if one.delta or one.trimmed or one.cause.kind in MOVES), seq - 1
    )
    back = shell.perdure("rollback", reader.name, str(before), **_on(branch))
    raise Conflict(
        f"cannot undo commit {seq}: a thread goes back as a whole, with what its tasks "
        "wait for and wrote",
        target=_target(reader.name, branch),
        hint=f"`{back}` goes back to before it",
    )


def refuse_redo(reader: LogReader, branch: str, path: Iterable[Commit]) -> None:
    """Raises Conflict for a branch of a thread: nothing is ever undone there."""
    if not of_a_thread(reader):
        return
    move = None
    for commit in path:
        if commit.cause.kind in MOVES:
            move = commit.seq
        if commit.delta or commit.trimmed or move:
            break
    back = shell.perdure("rollback", reader.name, str(move - 1) if move else "SEQ", **_on(branch))
    log = shell.perdure("log", reader.name, all=True)
    raise Conflict(
        "cannot redo: a thread goes back, and forward again, as a whole",
        target=_target(reader.name, branch),
        hint=f"`{back}` goes forward to before the rollback"
        if move
        else f"`{back}` goes to any commit that `{log}` shows",
    )


def refuse_inner(reader: LogReader, branch: str) -> None:
    """Raises Conflict for a line of a subgraph: it goes back with all others."""
    if not branch.startswith(INNER) or not of_a_thread(reader):
        return
    back = shell.perdure("rollback", reader.name, "SEQ")
    raise Conflict(
        "a subgraph's line does not go back alone",
        target=_target(reader.name, branch),
        hint=f"`{back}` moves the thread back to a commit, with all its lines",
    )


def refuse_thinned(reader: LogReader, branch: str, seq: int) -> None:
    """Raises NotFound for a line of a thread that would go back to before what retention left. The
    state of that commit may be left for another reason, but not the states of all other lines then,
    nor what they waited for."""
    said = reader.trim() if is_line(branch) else None
    if said is None or not of_a_thread(reader):
        return
    # On a branch that is not a line, use the commit whose moment it stands for.
    path = reader.ancestors(seq, damaged="all")
    moment = next((one for one in path if is_line(one.branch) or is_moment(one.branch)), None)
    if moment is None or moment.seq == 1 or moment.seq >= said.before or _is_named(moment):
        return
    raise NotFound(
        f"the thread's state at commit {seq} was removed by retention",
        target=_target(reader.name, branch),
        hint=f"it goes back to commit {said.before} and those behind it, and to checkpoints; a copy"
        " of the store, or an export, from before that has it",
    )


def _is_named(commit: Commit) -> bool:
    return any(isinstance(record, CheckpointRecord) for record in commit.typed)


def of_a_thread(reader: LogReader) -> bool:
    """True if a log is that of a thread."""
    for commit in reader.commits(1, damaged_too=True):
        if commit.schema_id:
            return is_thread(commit.schema_id)
    return False


def _on(branch: str) -> dict[str, str]:
    return {} if branch == MAIN else {"branch": branch}


def _target(name: str, branch: str) -> str:
    return f"agent {name!r}, branch {branch!r}"
