"""Values that stand in a table by themselves, where no hash is made of them."""

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
    """What was true around a checkpoint. Where it cannot be read, one whose guards hold for
    nothing: who asks for that checkpoint is told, and nobody else; what it was, the log says."""
    try:
        return _checkpoint(cell)
    except (msgspec.MsgspecError, ValueError):  # the latter of a text that is no UTF-8
        return Checkpoint(name, seq, "", "", (0, 0))


def value_of(cell: bytes, agent: str) -> Plain:
    """The value.

    Raises:
        Corrupt: it is none; whose it is.
    """
    try:
        return codec.decode(cell)
    except UndecodableError as error:
        raise Corrupt(
            f"a value of a run or a message cannot be read ({error})",
            target=f"agent {agent!r}",
            hint=chain.HINT,
        ) from error
