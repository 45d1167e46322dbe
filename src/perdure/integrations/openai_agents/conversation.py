"""A conversation as an agent's state, and what sessions do with it. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from agents import TResponseInputItem

from perdure.core.arguments.names import shown
from perdure.core.schema.schema import Schema
from perdure.core.types.nodes import isolate
from perdure.core.values.plain_values import Plain, take
from perdure.errors import Unstorable

NAMED_MAX = 3
"""Items that a commit's cause names one by one."""

LABEL_MAX = 60


@dataclass
class SavedRun:
    """A run that was interrupted, in `RunState`'s own serialization.

    Attributes:
        id: identifies this save.
        waiting_for: the tool calls that wait for approval.
        taken: when a process took it to resume it; None if none did yet.
    """

    id: str
    state: dict[str, Any]
    waiting_for: list[str] = field(default_factory=list)
    taken: datetime | None = None


@dataclass
class Conversation:
    """The state of an agent that is a session. A run's own state may be a subclass: it is
    the `schema` of a session from outside, then.

    Attributes:
        items: the SDK's input items, oldest first.
        run_state: the run that waits for approval, if one was saved.
    """

    items: list[dict[str, Any]] = field(default_factory=list)
    run_state: SavedRun | None = None


def check_schema(given: type[Conversation] | Schema[Any]) -> type[Conversation] | Schema[Any]:
    """Returns the type of a conversation's state, or its schema, as given.

    Raises:
        TypeError: it is not `Conversation` or a subclass, nor a schema of one.
    """
    cls = given.type if isinstance(given, Schema) else given
    if not isinstance(cls, type) or not issubclass(cls, Conversation):
        raise TypeError(
            f"schema= is Conversation, a subclass, or a schema of one, not {shown(given)}"
        )
    return given


def plain_items(items: Sequence[TResponseInputItem]) -> list[dict[str, Any]]:
    """Returns copies of the items as plain data. Copies, because the SDK continues to use its own,
    and one object may be in several of them.

    Raises:
        Unstorable: names the first place that is not plain data, e.g. ``items[2].output``.
    """
    taken = []
    for number, item in enumerate(items):
        if type(item) is not dict:
            raise Unstorable(
                f"an item is a dict, not a {type(item).__qualname__}",
                target=f"items[{number}]",
                hint="result.to_input_list(), and model_dump() of the SDK's models, give dicts",
            )
        taken.append(take(item, (number,), root="items"))
    return taken


def newest(draft: Conversation, limit: int | None) -> list[TResponseInputItem]:
    """Copies of the last `limit` items, or of all, oldest first."""
    found = last(draft.items, limit)
    return cast("list[TResponseInputItem]", deepcopy(found))


def newest_plain(state: Plain, limit: int | None) -> list[TResponseInputItem]:
    """Returns the newest items of a conversation's plain state; see `newest`. Items are plain data,
    so they only have to be copied: building thousands as typed values took longer than reading
    them."""
    found: Any = isolate(last(state.get("items", []), limit))
    return cast("list[TResponseInputItem]", found)


def last(items: Sequence[Any], limit: int | None) -> Sequence[Any]:
    start = 0 if limit is None else max(0, len(items) - limit)
    return items if start == 0 else items[start:]


def _copy(item: dict[str, Any]) -> TResponseInputItem:
    return cast(TResponseInputItem, deepcopy(item))


def pop(draft: Conversation) -> TResponseInputItem | None:
    return cast(TResponseInputItem, draft.items.pop()) if draft.items else None


def replace_all(items: list[dict[str, Any]]) -> Callable[[Conversation], None]:
    def replace(draft: Conversation) -> None:
        draft.items[:] = items

    return replace


Judge = Callable[[TResponseInputItem], bool]


def replace_tail(
    expected: list[TResponseInputItem], items: list[dict[str, Any]], expired: Judge | None = None
) -> Callable[[Conversation], bool]:
    """Returns a function that replaces the last items with `items`, if these still are the
    `expected` ones; and removes, from the oldest of those before them on, as many as are
    `expired`."""

    def replace(draft: Conversation) -> bool:
        start = len(draft.items) - len(expected)
        if start < 0 or newest(draft, len(expected)) != expected:
            return False
        gone = 0
        while expired is not None and gone < start and expired(_copy(draft.items[gone])):
            gone += 1
        draft.items[start:] = items
        if gone:
            del draft.items[:gone]
        return True

    return replace


def described(items: Sequence[dict[str, Any]]) -> str:
    """For the log: ``user message, function_call refund and 2 more``."""
    labels = [_label(item) for item in items[:NAMED_MAX]]
    more = len(items) - len(labels)
    return ", ".join(labels) + (f" and {more} more" if more else "")


def _label(item: dict[str, Any]) -> str:
    if isinstance(role := item.get("role"), str):
        text = f"{role} message"
    else:
        words = (item.get("type"), item.get("name"))
        text = " ".join(word for word in words if isinstance(word, str)) or "item"
    # A cause is text; a model's words may hold lone surrogates.
    return text[:LABEL_MAX].encode("utf-8", "replace").decode()
