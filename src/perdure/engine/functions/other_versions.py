"""Runs that were begun with another version of their function than this program has: what is said
of them, and the words by which they are found when a program comes that has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from perdure.core.format.records import Record
from perdure.engine.functions.agent_functions import AgentSpec, spec_of
from perdure.errors import Conflict, NeedsAttention, PerdureError
from perdure.model import Message, RunInfo
from perdure.storage.appending import NOTHING, Riders
from perdure.storage.looks import Look
from perdure.visible import visible

UNKNOWN = "no worker knows "
"""The beginning of the problem of a run whose function, or version of it, nobody serves."""

MISFIT = "by a worker that has version "
"""In the problem of a run that stopped in a version that replays the one it was begun with, and
recorded nothing in it."""


def version_asked(message: Message) -> str:
    """Returns the version of the function that an order is for."""
    asked = message.value if isinstance(message.value, Mapping) else {}
    return str(asked.get("version") or "")


def version_of(info: RunInfo | None, look: Look, own: str) -> str:
    """Returns the version of its function that the run of a look is of, or is asked for with; `own`
    if nobody asked for it yet."""
    if info is not None:
        return info.version
    asked = look.inbox("start")
    return version_asked(asked[0]) if asked else own


def in_words(function: str, version: str, *, plain: bool = False) -> str:
    """Names a version of a function in a sentence.

    Args:
        plain: only the function, which has no versions.
    """
    if plain:
        return f"function {function!r}"
    if not version:
        return f"function {function!r} without a version"
    return f"version {version!r} of function {function!r}"


def unknown(row: RunInfo, *, others: bool) -> NeedsAttention:
    """Returns the problem of a run that no living worker can take.

    Args:
        others: True if one serves its function, in other versions.
    """
    what = in_words(row.function, row.version, plain=not others)
    hint = "start a worker that has it: the run goes on by itself then; or cancel the run"
    if others:
        hint += f"; or declare replays=[{row.version!r}] in a version that makes the same calls"
    return NeedsAttention(f"{UNKNOWN}{what}", target=f"run {row.id}", hint=hint)


def misfit(reason: PerdureError, function: Callable[..., Any], version: str) -> PerdureError:
    """Returns the problem of a run of that version that stopped before the function recorded
    anything. If the function is of another version, which replays that, the run is taken up by a
    worker of its own version, if there comes one."""
    own = spec_of(function).version
    if own == version or not isinstance(reason, NeedsAttention):
        return reason
    return NeedsAttention(
        reason.problem,
        target=reason.target,
        hint=f"version {own!r} declares that it replays={[version]!r}; the run is taken up by "
        f"itself {MISFIT}{version!r}. Or: {reason.hint}",
    )


def recorded_by(function: Callable[..., Any], row: RunInfo) -> tuple[RunInfo, Riders]:
    """Returns a run's row while a function continues it, and what must be recorded of that with the
    first thing that the function records: from there on, only its version can continue the run."""
    version = spec_of(function).version
    if version == row.version:
        return row, NOTHING
    row = replace(row, version=version)
    return row, Riders([Record(t="run-version", run=row.id, version=version)], runs=[row])


def of_another(run: str, function: str, version: str, spec: AgentSpec[Any]) -> Conflict:
    """Returns the refusal to run a function on a run of another version."""
    own = f"version {spec.version!r}" if spec.version else "none"
    began = f"began with version {version!r}" if version else "began without a version"
    return Conflict(
        f"{began} of function {visible(function)!r}, and no program that can continue that is there"
        f" (this one has {own})",
        target=f"run {run}",
        hint=f"start a worker that has it: the run goes on by itself then; or declare "
        f"replays=[{version!r}] here, if this version makes the same calls",
    )
