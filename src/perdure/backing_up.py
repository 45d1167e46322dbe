"""`perdure.backup`: a verified copy of a store that is in use."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from msgspec import Struct

from perdure.core.arguments.checks import function
from perdure.errors import Corrupt
from perdure.public_data import PublicData
from perdure.storage.locate import Copied, copy_store
from perdure.storage.log.reader import LogReader
from perdure.verification.verify import verify_log

Progress = Callable[[str, int, int], None]
"""Called with the name of the part of the work, how much of it is done, and how much there is."""


class BackedUp(PublicData, Struct, frozen=True):
    """The result of `backup`.

    Attributes:
        path: the copy's.
        size_bytes: its size.
        agents: the agents in it, deleted ones among them; all their logs were verified.
        commits: those of all logs.
    """

    path: str
    size_bytes: int
    agents: int
    commits: int


def backup(
    url: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
) -> BackedUp:
    """Copies a SQLite store into a new file while programs use it, and verifies the copy.

    The copy is of one moment: it has every commit that was acknowledged before the call, and none
    that began after it, in whole. Writers do not wait for it; meanwhile the store's ``-wal`` grows.
    Every page of the copy and every log in it is checked before it gets its name, so an interrupted
    or failed backup leaves no file that could be taken for one. To use it, put it in the place of
    the store, or open it.

    Args:
        url: the store's path, or ``sqlite:///path``.
        path: where the copy is made; nothing may be there.
        progress: called with ``"pages"`` and then ``"commits"``, how many are done, and all.

    Raises:
        Conflict: something is at `path` already.
        Corrupt: a page or a log of the store is damaged; there is no copy.
        NotFound, StoreUnavailable, NotAStore, UnsupportedFormat: the store cannot be opened, or the
            copy cannot be written.
        ValueError: it is no SQLite store; the error names the command that backs that one up.
    """
    if progress is not None:
        function(progress, "progress=")
    tell = progress or _tell_nobody
    with copy_store(url, path, partial(tell, "pages")) as copy:
        agents, commits = _verify(copy, tell)
    made = os.path.abspath(os.fspath(path))
    return BackedUp(made, os.path.getsize(made), agents, commits)


def _verify(copy: Copied, tell: Progress) -> tuple[int, int]:
    """Returns the numbers of agents and of commits.

    Raises:
        Corrupt: a page or a log is damaged.
    """
    copy.maintain("check")
    infos = copy.incarnations()
    commits = sum(info.seq for info in infos)
    done = 0
    for info in infos:
        said = partial(_tell, tell, done, commits)
        try:
            verify_log(copy, LogReader(copy, info), progress=said)
        except Corrupt as error:
            error.hint = f"the store is as it was, and there is no copy. {error.hint}"
            raise
        done += info.seq
    tell("commits", commits, commits)
    return len(infos), commits


def _tell(tell: Progress, before: int, commits: int, done: int, _: int) -> None:
    tell("commits", before + done, commits)


def _tell_nobody(part: str, done: int, of: int) -> None:
    """Does nothing."""
