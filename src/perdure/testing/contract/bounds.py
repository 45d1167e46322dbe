"""The contract of the storage port on lengths: what `core.bounds` allows, every backend takes.

All text here is as long as allowed, in bytes too, and of random characters: an index that
compresses its entries would take far more of a repeated one.
"""

from __future__ import annotations

import random

from perdure.core.arguments.bounds import (
    KEY_BYTES_MAX,
    NAME_MAX,
    RUN_ID_BYTES_MAX,
    SUFFIX_BYTES_MAX,
)
from perdure.model import Message, RunInfo
from perdure.storage.capabilities import INBOX, RUN_ROWS, Backend, Sent
from perdure.testing.pen import Contract, Pen, needs


def wide(characters: int, seed: str) -> str:
    """Returns characters of four bytes each in UTF-8."""
    chances = random.Random(seed)
    return "".join(chr(chances.randrange(0x10000, 0x20000)) for _ in range(characters))


NAME = wide(NAME_MAX, "name")
BRANCH = wide(NAME_MAX, "branch")
RUN = wide(RUN_ID_BYTES_MAX // 4, "run")
KEY = wide(KEY_BYTES_MAX // 4, "key")
AGAIN = wide((KEY_BYTES_MAX + SUFFIX_BYTES_MAX) // 4, "again")


class BoundsContract(Contract):
    """Tests of lengths."""

    @needs(RUN_ROWS, INBOX)
    def test_the_widest_names_keys_and_messages_are_kept(self, backend: Backend) -> None:
        pen = Pen(backend, NAME)
        row = RunInfo(
            RUN,
            NAME,
            1,
            BRANCH,
            wide(NAME_MAX, "function"),
            wide(NAME_MAX, "run key"),
            "running",
            started=1,
            version=wide(NAME_MAX, "version"),
            queue=wide(NAME_MAX, "queue"),
            parent=wide(RUN_ID_BYTES_MAX // 4, "parent"),
        )
        pen.write(BRANCH, runs=[row], key=(KEY, b"asked"))
        signal = wide(NAME_MAX, "signal")
        message = Message(RUN, NAME, "signal", signal, AGAIN, 1, wide(NAME_MAX, "who"))
        sent = backend.send(message)
        assert isinstance(sent, Sent) and sent.fresh
        assert isinstance(repeated := backend.send(message), Sent) and not repeated.fresh
        assert backend.inbox(RUN, kind="signal") == [sent.message]
        assert backend.key(pen.number(), KEY) == (1, b"asked")
        info = backend.agent(NAME)
        assert info is not None and info.name == NAME
        [found] = backend.runs()
        assert (found.id, found.queue, found.parent) == (RUN, row.queue, row.parent)
        pen.write(BRANCH, consumed=[sent.message.no])
        assert backend.inbox(RUN) == []
