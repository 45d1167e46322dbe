"""Queries for messages of an inbox: the statement, and so the index, for each."""

from __future__ import annotations

from typing import TypedDict

from msgspec import Struct

from perdure.model import MessageKind


class InboxConditions(TypedDict, total=False):
    """Conditions on messages, as those of `InboxQuery`."""

    agent: str | None
    kind: MessageKind | None
    name: str | None
    limit: int | None
    newest_first: bool
    after: int


class InboxQuery(Struct, frozen=True):
    """The arguments of `Backend.inbox`."""

    run: str | None = None
    agent: str | None = None
    kind: MessageKind | None = None
    name: str | None = None
    limit: int | None = None
    newest_first: bool = False
    after: int = 0

    @property
    def statement(self) -> str:
        """The name of the statement that skips the fewest rows."""
        if self.run is not None:
            return "list_messages_of_run"
        if self.agent is not None:
            return "list_messages_of_agent"
        return "list_messages" if self.kind is None else "list_messages_of_kind"
