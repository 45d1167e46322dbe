"""Digests of values that a log must not tell: made with a key, which is not in the store.

A digest tells two values apart, and who has it can try values until one fits: an address, a phone
number or a birthday is found in seconds. With a key nobody can try who does not have it. Without
one, only values that cannot be guessed are safe, such as the key of an API.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping, Sequence
from hashlib import sha256

from perdure.core.arguments.exact_types import is_a, text
from perdure.core.arguments.names import shown
from perdure.core.schema.value_digest import DIGEST_SIZE, UNKNOWN, is_known
from perdure.errors import NeedsAttention

DigestKey = str | bytes | Sequence[str | bytes]

VARIABLE = "PERDURE_DIGEST_KEY"
"""Of the environment: the keys, apart by spaces, where none are given."""

SEALED = "k"
"""Begins the digest of a value that is not recorded; the id of its key follows, and a colon."""

KEY_BYTES_MIN = 16
_ID_BYTES = 4
_DOMAIN = b"perdure argument digest\0"


class DigestKeys:
    """The keys of an open store, the newest first. Digests are made with that one; the others are
    for those that are recorded.

    Attributes:
        newest: the id of the newest key; empty: there is none.
    """

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        self._keys = {_mac(key, b"id")[:_ID_BYTES].hex(): key for key in keys}
        self.newest = next(iter(self._keys), "")

    def __repr__(self) -> str:
        return f"<digest keys {', '.join(self._keys) or 'none'}>"  # never the keys

    def seal(self, digests: Mapping[str, str], by: str) -> dict[str, str]:
        """Returns digests of arguments, made with a key.

        Args:
            by: its id; empty: they are marked, and can be guessed.

        Raises:
            NeedsAttention: this store was opened without that key.
        """
        return {name: self._sealed(name, found, by) for name, found in digests.items()}

    def as_recorded(
        self, digests: Mapping[str, str], recorded: Mapping[str, str]
    ) -> dict[str, str]:
        """Returns digests in the form in which those of another call are recorded, each made with
        that one's key, or as it is where that one's value was no secret yet.

        Raises:
            NeedsAttention: as `seal`.
        """
        return {
            name: found if (by := key_of(recorded.get(name, ""))) is None else
            self._sealed(name, found, by)
            for name, found in digests.items()
        }  # fmt: skip

    def _sealed(self, name: str, found: str, by: str) -> str:
        unknown = "" if is_known(found) else UNKNOWN
        if not by:
            return f"{unknown}{SEALED}:{found.removeprefix(UNKNOWN)}"
        key = self._keys.get(by)
        if key is None:
            raise NeedsAttention(
                f"what it recorded of arguments that are left out (record_args=) was made with the "
                f"digest key {by}, and this store was opened with {self._names()}",
                hint=f"open it with that key, too: perdure.open(…, digest_key=[new, old]), or "
                f"{VARIABLE}; then run it again",
            )
        said = _mac(key, f"{name}\0{found}".encode())[:DIGEST_SIZE].hex()
        return f"{unknown}{SEALED}{by}:{said}"

    def _names(self) -> str:
        return " and ".join(self._keys) or "none"


NO_KEYS = DigestKeys()


def key_of(found: str) -> str | None:
    """Returns the id of the key with which a digest was made; empty: with none. None: its value is
    no secret."""
    if not found.startswith((SEALED, UNKNOWN + SEALED)):
        return None  # the others begin with a hex digit
    return found.removeprefix(UNKNOWN).removeprefix(SEALED).partition(":")[0]


def form_of(digests: Mapping[str, str]) -> frozenset[tuple[str, str | None]]:
    """Returns the form of a call's digests: with which keys they were made."""
    return frozenset((name, key_of(found)) for name, found in digests.items())


def digest_keys(given: object) -> DigestKeys:
    """Returns the keys given with `digest_key=`: one, or several with the newest first; None: those
    of the environment.

    Raises:
        TypeError, ValueError: one is no key, or could be guessed. It is not shown.
    """
    if given is None:
        return DigestKeys([_key(one, VARIABLE) for one in os.environ.get(VARIABLE, "").split()])
    several = is_a(given, list) or is_a(given, tuple)
    keys = [_key(one, "digest_key=") for one in (given if several else [given])]  # type: ignore[attr-defined]
    return DigestKeys(keys)


def _key(given: object, of: str) -> bytes:
    if is_a(given, str):
        said = text(given).encode("utf-8", "surrogatepass")
    elif is_a(given, bytes):
        said = bytes.__add__(given, b"")
    else:
        raise TypeError(f"{of} must be bytes or a text, or a list of them, not {_kind(given)}")
    if len(said) < KEY_BYTES_MIN:
        raise ValueError(
            f"{of} must have {KEY_BYTES_MIN} bytes at least, and nobody may guess it: "
            "secrets.token_hex(32) makes one"
        )
    return said


def _kind(given: object) -> str:
    return "None" if given is None else shown(type(given))


def _mac(key: bytes, what: bytes) -> bytes:
    return hmac.digest(sha256(key).digest(), _DOMAIN + what, "sha256")
