"""A file beside the store that tells the next opener of a failed sync.

The story: a process could not sync a commit, reported "unknown", and ended. The next one read that
commit from the system's memory, took it for durable, and wrote its own after it. The power failed:
on the disk the log had a hole, and everything acknowledged after it was gone. The system's memory
lies until the next boot; the file has to last that long, and need not be durable itself.
"""

from __future__ import annotations

import os
from contextlib import suppress

from perdure.private import make_file
from perdure.storage.sqlite.files import exists


def doubt(path: str) -> None:
    """Notes that the content of the store's WAL may not be on the disk, though it can be read."""
    with suppress(OSError):  # where not even that can be written, the store cannot be, either
        os.close(make_file(_file(path), os.O_WRONLY, like=path))


def is_in_doubt(path: str) -> bool:
    try:
        return exists(_file(path))
    except OSError:
        return True  # to write all of it anew costs little, and to trust it wrongly everything


def trust(path: str) -> None:
    """Removes the note: everything was written and synced again."""
    with suppress(OSError):  # where it stays, all of it is written anew once more
        os.unlink(_file(path))


def _file(path: str) -> str:
    return path + "-in-doubt"
