"""Checks of the rows beside a log: of runs, and of messages to them.

These rows are read for all runs of a store at once: one row of a wrong type would keep everybody
from all of them. So they are checked on the way in, like records (I11), on every backend alike.
"""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.core.arguments.bounds import (
    KEY_BYTES_MAX,
    NAME_MAX,
    RUN_ID_BYTES_MAX,
    SUFFIX_BYTES_MAX,
)
from perdure.core.arguments.names import is_text, shown
from perdure.core.format.records import Started
from perdure.errors import Unstorable
from perdure.model import FINISHED, MICROS_MAX, UNFINISHED, Message, RunInfo

_STATUSES = frozenset((*UNFINISHED, *FINISHED))
_KINDS = frozenset(("start", "signal", "answer", "cancel"))
_TEXTS = (
    "id",
    "agent",
    "branch",
    "function",
    "key",
    "args",
    "waits",
    "version",
    "queue",
    "parent",
)
_SEQS = ("agent_no", "started", "ended", "turn", "turn_at", "seen")
_MOMENTS = ("wake_at_micros", "started_at_micros", "changed_at_micros")
_SEQ_MAX = 2**62


def check_row(row: RunInfo) -> None:
    """Refuses a run's row that readers would choke on, or that not every backend can keep.

    Raises:
        Unstorable: naming the field.
    """
    for name in _TEXTS:
        word = getattr(row, name)
        if type(word) is not str or not (word.isascii() or is_text(word)):
            raise _wrong("row of a run", name, word)
    for name in _SEQS:
        number = getattr(row, name)
        if type(number) is not int or not 0 <= number <= _SEQ_MAX:
            raise _wrong("row of a run", name, number)
    for name in _MOMENTS:
        number = getattr(row, name)
        if type(number) is not int or not 0 <= number <= MICROS_MAX:
            raise _wrong("row of a run", name, number)
    problem = row.problem
    if problem is not None and (type(problem) is not str or not is_text(problem)):
        raise _wrong("row of a run", "problem", problem)
    if row.status not in _STATUSES:
        raise _wrong("row of a run", "status", row.status)
    if not row.queue:
        raise _wrong("row of a run", "queue", row.queue)
    if len(row.id) > RUN_ID_BYTES_MAX // 4:
        _within("row of a run", "id", row.id, RUN_ID_BYTES_MAX)


def order_of(value: Any) -> Started:
    """Returns the order in a "start" message, as the record of the begin that it asks for.

    Raises:
        ValueError, TypeError: it is none.
    """
    if type(value) is not dict:
        raise TypeError("an order must be a map")
    order = msgspec.convert({**value, "t": "run-started", "run": ""}, Started)
    if not all(type(word) is str for word in (order.version, order.queue, order.parent)):
        raise TypeError("version, queue and parent must be texts")
    if "branch" in value and not (type(value["branch"]) is str and value["branch"]):
        raise TypeError("a branch must be a text")
    return order


def check_message(message: Message) -> None:
    """Refuses a message that readers would choke on, or that not every backend can keep.

    Raises:
        Unstorable: naming the field.
    """
    what = f"message {message.kind!r:.20} to a run"
    for name in ("run", "agent", "name", "key", "who"):
        word = getattr(message, name)
        if type(word) is not str or not (word.isascii() or is_text(word)):
            raise _wrong(what, name, word)
    if message.kind not in _KINDS:
        raise _wrong(what, "kind", message.kind)
    _within(what, "run", message.run, RUN_ID_BYTES_MAX)
    _within(what, "agent", message.agent, 4 * NAME_MAX)
    _within(what, "name", message.name, 4 * NAME_MAX)
    _within(what, "key", message.key, KEY_BYTES_MAX + SUFFIX_BYTES_MAX)
    if message.kind == "start":
        value: Any = message.value
        try:
            order = order_of(value)
        except (ValueError, TypeError) as error:
            raise Unstorable(f"{what} cannot be sent: {error}", hint=_HINT) from error
        if not order.function or not order.key or value.get("queue", "default") == "":
            raise _wrong(what, "value", value)


_HINT = "nothing was written; an argument of this call is of a wrong type"


def _wrong(what: str, name: str, value: object) -> Unstorable:
    return Unstorable(
        f"a {what} cannot be written: its {name} could not be read again: {shown(value)}",
        hint=_HINT,
    )


def _within(what: str, name: str, word: str, bytes_max: int) -> None:
    if len(word) * 4 > bytes_max and len(word.encode()) > bytes_max:
        raise Unstorable(
            f"a {what} cannot be written: its {name} has more than {bytes_max} bytes: "
            f"{word[:60]!r}…",
            hint="nothing was written; give agent, function or key a shorter name",
        )
