"""Messages that a run sends to others by the commit that records it: a signal, or to end."""

from __future__ import annotations

from typing import Any

from perdure.core.format.records import Placed, SentMessage
from perdure.model import Message
from perdure.storage.appending import Riders


def sent_by(message: Message) -> SentMessage:
    """Returns what is recorded of a message that this record's commit sends."""
    kind: Any = message.kind
    return SentMessage(run=message.run, kind=kind, name=message.name, key=message.key)


def telling(record: Placed, message: Message) -> Riders:
    """Returns the riders of a commit that sends a message to a run which has not ended.

    The commit raises EndedError: it has ended since it was looked at.
    """
    return Riders((record,), sync=True, sends=(message,), going=(message.run,))
