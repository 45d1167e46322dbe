"""Values in table cells of their own, which no hash covers."""

from __future__ import annotations

import msgspec

from perdure.core.format import chain
from perdure.core.values import codec
from perdure.core.values.codec import UndecodableError
from perdure.core.values.plain_values import Plain
from perdure.errors import Corrupt
from perdure.model import Checkpoint

_checkpoint = msgspec.msgpack.Decoder(Checkpoint).decode


def checkpoint_of(cell: bytes, name: str, seq: int) -> Checkpoint:
    """Returns the recorded surroundings of a checkpoint. If they cannot be read, it returns guards
    that nothing matches: only who asks for that checkpoint is affected, and the log has the
    original."""
    try:
        return _checkpoint(cell)
    except (msgspec.MsgspecError, ValueError):  # the latter of a text that is no UTF-8
        return Checkpoint(name, seq, "", "", (0, 0))


def value_of(cell: bytes, agent: str) -> Plain:
    """Returns the value.

    Raises:
        Corrupt: the cell is damaged; the error names the agent.
    """
    try:
        return codec.decode(cell)
    except UndecodableError as error:
        raise Corrupt(
            f"a value of a run or a message cannot be read ({error})",
            target=f"agent {agent!r}",
            hint=chain.HINT,
        ) from error
