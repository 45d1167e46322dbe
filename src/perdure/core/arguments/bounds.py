"""Limits on the length of names, keys, callers' words and times: the same on every backend.

What one backend takes, all take, so that an agent can move to any of them. The narrowest of them
sets the limits: PostgreSQL indexes 2,704 bytes at most. Its widest index is that of the inbox:
agent (800 bytes), run (700), kind, signal (800, or that of a child: 706) and key (240). The
contract suite puts a row of exactly these sizes into each backend.
"""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256

NAME_MAX = 200
"""Characters of a name: agent, branch, checkpoint, run key, queue, signal, step, schema id …"""

RUN_ID_BYTES_MAX = 700
"""Bytes of a run's id, which is made of the names of agent and function and of the key."""

KEY_BYTES_MAX = 200
"""Bytes of an idempotency key that is kept as it is; a longer one is kept by its digest."""

WORDS_MAX = 10_000
"""Characters of what a caller says in words: why a commit was made, who asks, a tag, a key."""

TAGS_MAX = 1_000
"""Tags of one commit."""

DURATION_MAX = timedelta(days=365_000)
"""The longest time that can be waited for: a thousand years. A moment behind it has a date."""

SUFFIX_BYTES_MAX = 40
"""Bytes by which a signal's key grows where a run that was set back gets it again."""


def index_key(key: str) -> str:
    """Returns the form of a key that the stores' indexes keep: the key itself, or its digest where
    it is longer than they take. Idempotent: the result may be passed in again."""
    return _within(key, KEY_BYTES_MAX)


def message_key(key: str) -> str:
    """Returns the form of an inbox message's key. Like `index_key`, with room for the suffix of a
    message that was put back."""
    return _within(key, KEY_BYTES_MAX + SUFFIX_BYTES_MAX)


def _within(key: str, bytes_max: int) -> str:
    if len(key) <= bytes_max and (key.isascii() or len(key.encode()) <= bytes_max):
        return key
    return key_digest(key)


def key_digest(key: str) -> str:
    return f"sha256:{sha256(key.encode()).hexdigest()}"
