"""The writes of tasks, as the records of commits have them."""

from __future__ import annotations

from msgspec import Struct

from perdure.core.values.plain_values import Plain
from perdure.integrations.langgraph.threads.record import malformed
from perdure.model import Commit

WRITES = "lg-writes"
"""The kind of our records, in their `t`, beside those of checkpoints."""


class Write(Struct):
    """One call of `put_writes`. `writes`: index, channel and plain value of each. `brought`: they
    were moved from another checkpointer, not written here."""

    task: str
    path: str
    writes: list[tuple[int, str, Plain]]
    brought: bool = False


def writes_on(commit: Commit) -> int | None:
    """Returns the checkpoint of its line for a commit of writes; None for another commit."""
    for record in commit.records:
        if record.get("t") == WRITES:
            on = record.get("on", 0)
            if type(on) is not int or not 0 <= on < commit.seq:
                raise malformed(commit)
            return on
    return None


def read_writes(commit: Commit, on: int | None = None) -> list[Write]:
    """The writes that a commit has. `on`: those for the checkpoint there; None: all."""
    try:
        return [
            Write(
                # Texts, whatever an earlier version stored: they are put in order.
                str(record["task"]),
                str(record["path"]),
                [_write(*one) for one in record["writes"]],
                record.get("brought") is True,
            )
            for record in commit.records
            if record.get("t") == WRITES and (on is None or record["on"] == on)
        ]
    except (LookupError, TypeError) as error:
        raise malformed(commit) from error


def _write(index: int, channel: str, value: Plain) -> tuple[int, str, Plain]:
    if type(index) is not int or type(channel) is not str:
        raise TypeError("a write is a number, the name of a channel, and a value")
    return index, channel, value
