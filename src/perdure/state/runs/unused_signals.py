"""Signals that a run had and did not use, or used in a history that it left: they are not lost.

The commit that ends a run takes out what is left in its inbox, because nobody reads it any more. It
is kept in the log, so that a run that is set back gets it again, like the signals that it took
since then. A sender need not, and cannot, send a signal under the same key again. An answer is for
its question alone, and recorded as refused.

A message may come after the inbox was read for the last commit, and before that commit is in. Its
sender was told that it arrived, so it must not be lost: the storage refuses the commit, which is
made again after another read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from perdure.core.arguments.bounds import index_key, key_digest
from perdure.core.format import envelope
from perdure.core.format.records import Completed, Record, WaitEnded
from perdure.core.values import codec
from perdure.core.values.plain_values import Plain
from perdure.model import Commit, Message
from perdure.state.runs.family_messages import CHILD
from perdure.state.runs.run_reading import RecordedWaits, branch_of
from perdure.storage.capabilities import Backend

MOVE = "@move"
"""The name of signals that ask the run to move its branch. One that it did not come to is no
signal to keep: whoever sent it looks what came of it, and has a limit of time."""

_RENEWED = re.compile("↺[0-9]+$")
_LEFT_MAX = envelope.SEALED_MAX // 4
"""Bytes of signals that a run's last commit has room for, beside its result and what waited."""


class Unused(Struct, frozen=True):
    """The signals to a run that is about to end, except those that its last commit takes.

    Attributes:
        last_no: the number of the last signal or answer read, taken ones included; 0: there was
            none.
        answers: to questions that are over with the run, or were before.
        asked: messages that requested the run after another caller had begun it: their senders wait
            for its end, and its last commit takes them out, too.
        cancels: messages that asked it to end.
    """

    run: str
    signals: Sequence[Message]
    last_no: int
    asked: Sequence[Message] = ()
    cancels: Sequence[Message] = ()
    answers: Sequence[Message] = ()

    @classmethod
    def read(cls, backend: Backend, run: str) -> Unused:
        found = backend.inbox(run)
        read = (message.no for message in found if message.kind in ("signal", "answer"))
        last = max(read, default=0)
        return cls.among(run, found, last)

    @classmethod
    def among(cls, run: str, messages: Collection[Message], last_no: int) -> Unused:
        """Returns the signals among the untaken messages of the run's inbox."""
        signals = [one for one in messages if one.kind == "signal" and one.name != MOVE]
        asked = [message for message in messages if message.kind == "start"]
        cancels = [message for message in messages if message.kind == "cancel"]
        answers = [message for message in messages if message.kind == "answer"]
        return cls(run, signals, last_no, asked, cancels, answers)

    @property
    def read_to(self) -> Mapping[str, int]:
        """For `Riders`: the commit is refused if something has arrived since."""
        return {self.run: self.last_no}

    @property
    def consumed(self) -> list[int]:
        """The messages that its last commit takes out."""
        return [message.no for message in (*self.asked, *self.cancels)]

    def records(self, end: Record) -> list[Record]:
        """Returns the record that ends the run, with the signals that it did not take beside its
        result, if any; before it, those of answers that are refused."""
        value = None if end.value is UNSET else end.value
        return [
            *(_refused(answer) for answer in self.answers),
            replace(end, **_left_over(self.signals, beside=value)),
        ]


def _refused(answer: Message) -> WaitEnded:
    """Returns the record of an answer that was there when the run ended."""
    return WaitEnded(
        t="message-refused",
        run=answer.run,
        place=answer.name.rpartition(" ")[0] or answer.name,
        label="it",
        kind="ask",
        key=answer.key,
        who=answer.who,
        at=answer.at_micros,
        value=answer.value,
        problem="the run ended without it",
    )


def sent_key(key: str) -> str:
    """Returns a sender's key in the form that inboxes keep, which never reads as the key of a
    repeated signal."""
    return key_digest(key) if _RENEWED.search(key) else index_key(key)


def base_key(key: str) -> str:
    """Returns the key that a signal was first sent with."""
    return _RENEWED.sub("", key)


def renewed(key: str, until: int) -> str:
    """Returns the key under which a signal comes again to a run that was set back when this was the
    last commit: the inbox ignores a key that it had."""
    return f"{index_key(base_key(key))}↺{until}"


def signal_of(began: Record | None, ended: Record | None) -> Message | None:
    """Returns the signal that a wait took, by the records of its begin and its end; None if it was
    not a signal."""
    if not isinstance(ended, WaitEnded):
        return None
    branch = branch_of(began, ended)
    if branch is None or branch.kind != "signal" or not ended.key:
        return None
    return Message("", "", "signal", branch.name, ended.key, ended.value, ended.who)


def _left_over(messages: Sequence[Message], beside: Plain = None) -> dict[str, Any]:
    """Returns the fields of a record that keep them; empty if there is nothing. Ends of the run's
    children are left out: their rows say those.

    Args:
        beside: the run's result, which has priority.
    """
    left: list[dict[str, Any]] = []
    size = out = 0
    if messages and len(codec.encode(beside)) > envelope.SEALED_MAX // 2:
        size = _LEFT_MAX
    for one in messages:
        if one.kind != "signal" or one.name.startswith(CHILD):
            continue
        plain = {name: getattr(one, name) for name in ("name", "key", "value", "who")}
        plain["at"] = one.at_micros
        size += len(codec.encode(plain))
        if size > _LEFT_MAX:
            out += 1
        else:
            left.append(plain)
    return {**({"left": left} if left else {}), **({"left_out": out} if out else {})}


def signals_left(
    commits: Iterable[Commit], untils: Mapping[str, int], kept: Callable[[Commit, Record], bool]
) -> dict[tuple[str, str], Message]:
    """Returns the signals that these runs took in a history that they leave, or had when they
    ended, by their names and first keys, in the order in which they were taken. Each has the value
    that it had last, with what a type filled in: calls that were made with that are found again.

    Args:
        commits: of the runs' turn, in the order of the log.
        untils: the last commit to look at, by the ids of the runs.
        kept: returns True if a record of a commit is of the history that they continue.
    """
    waits = RecordedWaits()
    found: dict[tuple[str, str], Message] = {}
    used: set[tuple[str, str]] = set()
    taken: dict[tuple[str, int], tuple[str, str]] = {}
    for commit in commits:
        for record in commit.typed:
            if commit.seq > untils.get(record.run, -1) or record.t == "message-refused":
                continue
            waits.note(record)
            if isinstance(record, Completed):
                which = taken.get((record.place, record.seq))
                if which is not None and which in found:
                    found[which] = replace(found[which], value=record.value)
            for one in waits.signals(record):
                which = one.name, base_key(str(one.key))
                if one.how == "given back":
                    if kept(commit, record):
                        used.discard(which)
                elif one.how == "taken" and kept(commit, record):
                    used.add(which)
                else:
                    taken[record.place, commit.seq] = which
                    found[which] = Message("", "", "signal", *which, one.value, one.who)
    return {which: message for which, message in found.items() if which not in used}
