"""The compression dictionary for short bodies: what commits have in common is not stored in each.

A commit's payload has some hundred bytes, many of which are the same in all: names of fields, of
ops and records. A dictionary that was trained on such payloads takes a third off them, and packing
one takes half the time. It is part of the format (docs/format.md, "Envelope"): a file of this
package that never changes. A better one would be another file with a number of its own.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.errors import StoreUnavailable
from perdure.system.late_imports import loading
from perdure.system.locks import Lock

if TYPE_CHECKING:
    import zstandard

ID = b"\x01"
"""Its number, as it stands in envelopes."""

SHA256 = "bcc0e16efe36155912925b340785bf02598c13f3127a466f00179a3da0a60445"
"""Of the file. With another one, what is sound would look damaged."""

_PATH = Path(__file__).with_name("dictionary-1.zdict")
_mutex = Lock()
_loaded: dict[int, zstandard.ZstdCompressionDict] = {}


def load(level: int) -> zstandard.ZstdCompressionDict:
    """Returns the dictionary, prepared for packing at a level. Threads may share it."""
    with _mutex:
        found = _loaded.get(level)
        if found is None:
            check_installed()
            with loading:
                import zstandard

            found = zstandard.ZstdCompressionDict(_read())
            found.precompute_compress(level=level)
            _loaded[level] = found
        return found


def _read() -> bytes:
    """Returns the file's bytes, as released.

    Raises:
        StoreUnavailable: the file is missing or differs from the released one.
    """
    try:
        data = _PATH.read_bytes()
    except OSError as error:
        raise _lacking(f"cannot be read: {error.strerror or error}") from error
    if sha256(data).hexdigest() != SHA256:
        raise _lacking("is not as it was released")
    return data


def check_installed() -> None:
    """Imports the compression library, once.

    Raises:
        StoreUnavailable: this Python does not have it, or cannot read it now.
    """
    try:
        with loading:
            import zstandard as zstandard  # 5 ms to import
    except ImportError as error:
        raise StoreUnavailable(
            f"stored data is packed with zstd, and this Python lacks zstandard: {error}",
            hint="pip install zstandard; nothing is wrong with the store",
        ) from error


def _lacking(problem: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"Perdure's own file {_PATH.name}, the dictionary of stored data, {problem}",
        target=str(_PATH),
        hint="reinstall perdure; nothing is wrong with the store",
    )
