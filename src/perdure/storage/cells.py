"""Values that stand in a table by themselves, in no commit: no hash is made of them."""

from __future__ import annotations

from perdure.core import chain, codec
from perdure.core.codec import UndecodableError
from perdure.core.values import Plain
from perdure.errors import Corrupt


def value_of(cell: bytes, agent: str) -> Plain:
    """The value.

    Raises:
        Corrupt: it is none; whose it is.
    """
    try:
        return codec.decode(cell)
    except UndecodableError as error:
        raise Corrupt(
            f"a value of a run or a message cannot be read ({error})", target=f"agent {agent!r}",
            hint=chain.HINT,
        ) from error  # fmt: skip
