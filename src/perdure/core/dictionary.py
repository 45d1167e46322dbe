"""The dictionary that short bodies are packed with: what commits have alike is not stored in each.

A commit's payload has some hundred bytes, many of which are the same in all: names of fields, of
ops and records. A dictionary that was trained on such payloads takes a third off them, and packing
one takes half the time. It is part of the format (docs/format.md, "Envelope"): a file of this
package that never changes. A better one would be another file with a number of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from perdure.core.locks import Lock

if TYPE_CHECKING:
    import zstandard

ID = b"\x01"
"""Its number, as it stands in envelopes."""

_PATH = Path(__file__).with_name("dictionary-1.zdict")
_mutex = Lock()
_loaded: dict[int, zstandard.ZstdCompressionDict] = {}


def load(level: int) -> zstandard.ZstdCompressionDict:
    """The dictionary, made ready for packing at a level. It may be shared between threads."""
    with _mutex:
        found = _loaded.get(level)
        if found is None:
            import zstandard

            found = zstandard.ZstdCompressionDict(_PATH.read_bytes())
            found.precompute_compress(level=level)
            _loaded[level] = found
        return found
