"""Ways out: what a person can do about a run."""

from __future__ import annotations

from msgspec import Struct

from perdure.engine.journal.deleted_runs import never_comes
from perdure.public_data import PublicData
from perdure.storage.capabilities import Backend, RunQuery
from perdure.system import shell
from perdure.visible import visible


class WayOut(PublicData, Struct, frozen=True):
    """Something that a person can do: in words, and as a ``perdure`` command line if a command does
    it."""

    words: str
    command: tuple[str, ...] = ()


def by(words: str, command: str, *given: str, **options: str | bool) -> WayOut:
    """Returns a way out that is a command, whatever names are given to it."""
    return WayOut(words, shell.words(command, *given, **options))


def of_child(backend: Backend, run: str, child: str) -> WayOut:
    """For a run that waits for another's end. Where only its own log was imported, and the other
    had begun, that is not there; or a stranger's has its id."""
    if why := never_comes(backend, run, child):
        return WayOut(
            f"not for run {visible(child)}, which {why}: end this one, or set it back then"
        )
    if backend.runs(RunQuery(run_id=child)) or backend.inbox(child, kind="start", limit=1):
        return by("ask the same of the run that it waits for", "why", child)
    return WayOut(
        "there is no such run, and nothing requests one: import the log of its agent; or end this "
        "one, and start it again under another key"
    )
