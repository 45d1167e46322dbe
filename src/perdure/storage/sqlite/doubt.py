"""A failed sync is told to whoever opens the store next, by a file beside it.

The story: a process could not sync a commit, said "unknown", and ended. The next one read that
commit from the system's memory, took it for durable, and wrote its own behind it. The power failed:
on the disk the log had a hole, and all that was acknowledged behind it was gone. The system's
memory lies until the next boot; so long must the file last, and it need not be durable itself.
"""

from __future__ import annotations

import os
from contextlib import suppress

from perdure.private import make_file
from perdure.storage.sqlite.files import exists


def doubt(path: str) -> None:
    """What the store's WAL holds may not be on the disk, though it can be read."""
    with suppress(OSError):  # where not even that can be written, the store cannot be, either
        os.close(make_file(_file(path), os.O_WRONLY, like=path))


def is_in_doubt(path: str) -> bool:
    try:
        return exists(_file(path))
    except OSError:
        return True  # to write all of it anew costs little, and to trust it wrongly everything


def trust(path: str) -> None:
    """All of it was written and synced anew."""
    with suppress(OSError):  # where it stays, all of it is written anew once more
        os.unlink(_file(path))


def _file(path: str) -> str:
    return path + "-in-doubt"
