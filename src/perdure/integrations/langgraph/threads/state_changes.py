"""The change that a checkpoint makes to the state of its thread, found in time that depends on the
change.

The state is ``{"values": channel values, "versions": …, "seen": …}``. LangGraph hands over all
channel values each time, in fresh lists of mostly the same objects. So for each line of a thread
the objects that the stored values came from are remembered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import chain, compress, islice, repeat
from itertools import count as count_up
from operator import attrgetter, is_, is_not, ne
from typing import Any

from langchain_core.messages import BaseMessage
from pydantic import BaseModel

from perdure.core.types.slots import slots_of
from perdure.core.values.diff import diff
from perdure.core.values.ops import Append, Delete, Op, Set, Splice
from perdure.core.values.plain_values import SCALARS, Path, Plain
from perdure.integrations.langgraph.values.rich_values import Coder

VALUES, VERSIONS, SEEN = "values", "versions", "seen"
_content = attrgetter("content")
_ABSENT = object()

TAIL = 8
"""Items at a list's end that are looked at whole each time: what programs change in place."""

REPLACED = 16
"""So many items that are other objects than before are compared one by one; of more, all from the
first on."""

RECENT = 64
"""Items at a list's end that are glanced at each time; of those before them as many, in turn.
Each is a few lines of memory that no cache has any more after the last commit."""


class ValueSource:
    """The objects that a stored value came from, and how they looked then.

    The same object is not always the same value: a caller may change an object in place, and hand
    it in again. So the contents of messages, the attributes of other objects and the items of
    containers are compared; the last few items are compared in full. Comparing all of a long list
    would cost more than storing what is new.

    To compare thousands of messages by identity took as long as their commit's sync. So a list that
    equals its earlier version, plus new items, is taken for the same: one comparison in C, which
    does not look into identical objects. What it may miss, an item replaced by an equal one (1 for
    True), is found like changes in place.

    New items are added to the remembered list: the version before knows how many of them are its
    own. Copying thousands of them each time took as long as the commit.
    """

    def __init__(self, value: Any) -> None:
        self.value = value
        self._items: list[Any] = list(value) if type(value) is list else []
        self._count = len(self._items)
        self._messages, self._fixed, self._usual = _sorts(self._items)
        self._looks = self._look(self._items)
        self._last = self._wholes(self._items)
        self._turn = 0

    def _look(self, items: list[Any]) -> list[Any]:
        if self._fixed:  # nobody changes these in place
            return items
        if not self._messages:
            return list(map(_glance, items))
        contents = list(map(_content, items))
        return contents if _TEXT.issuperset(map(type, contents)) else list(map(_blocks, contents))

    def _wholes(self, items: list[Any]) -> list[_Whole | None]:
        return list(map(_whole, items[-TAIL:])) if self._messages else []

    def unchanged(self, items: list[Any], *, exactly: bool = False) -> tuple[int, list[int]]:
        """Returns the number of unchanged items at the front, and the indexes of those among them
        that must be compared: they were replaced by others, or maybe changed in place.

        Args:
            exactly: also report items replaced by equal ones.
        """
        count = min(len(items), self._count)
        replaced: list[int] = []
        known = self._items if len(self._items) == self._count else self._items[: self._count]
        # By identity, here and below: 1 equals True and 1.0, and so do messages that have them.
        if (exactly or not self._grew(items)) and any(map(is_not, items, known)):
            found = compress(count_up(), map(is_not, items, known))
            replaced = list(islice(found, REPLACED + 1))
            if len(replaced) > REPLACED or (replaced and replaced[-1] == count - 1):
                # Items were removed or inserted in front of others, too: the rest is compared as a
                # whole.
                count, replaced = replaced[0], []
            if self._messages:  # what is looked at below is what only messages have
                strange = [at for at in replaced if not isinstance(items[at], BaseMessage)]
                if strange:
                    count, replaced = strange[0], [at for at in replaced if at < strange[0]]
        if self._fixed:
            return count, replaced
        doubtful = {*replaced, *self._doubtful_at_end(items, count)}
        recent = max(0, count - RECENT)
        for start, stop in ((recent, count), (self._turn, min(recent, self._turn + RECENT))):
            now, then = self._look(items[start:stop]), self._looks[start:stop]
            if any(map(is_not, now, then)):
                doubtful.update(compress(range(start, stop), map(_differ, now, then)))
            if self._usual and any(map(is_not, items[start:stop], known[start:stop])):
                others = map(is_not, items[start:stop], known[start:stop])
                doubtful.update(compress(range(start, stop), others))
        return count, sorted(doubtful)

    def _grew(self, items: list[Any]) -> bool:
        """Returns True if usual messages begin with the known ones, or with ones equal to them."""
        known, count = self._items, self._count
        if not self._usual or len(known) != count or not 0 < count <= len(items):
            return False
        if items[0] is not known[0] or items[count - 1] is not known[-1]:
            return False  # many may be others: who compares all of them by value never ends
        known += items[count:]  # lists are compared item by item only where they are of one length
        try:
            return known == items
        except Exception:  # of a value inside a message that cannot be compared
            return False
        finally:
            del known[count:]

    def _doubtful_at_end(self, items: list[Any], count: int) -> list[int]:
        """Returns the last of the items at the front that do not consist of exactly the parts that
        they had."""
        last, known_from = self._last, self._count - len(self._last)
        doubtful: list[int] = []
        for index in range(max(0, count - TAIL), count):
            then = last[index - known_from] if index >= known_from else None
            if then is not None:
                parts, hollow = then
                item = items[index]
                own = item.__dict__
                if (
                    len(own) == len(parts)
                    and all(map(is_, own.values(), parts))
                    and not item.__pydantic_extra__
                    and not any(hollow)
                ):
                    continue
            doubtful.append(index)
        return doubtful

    def extended(self, items: list[Any], count: int, doubtful: list[int]) -> ValueSource:
        """For a list of which the first `count` items are ours."""
        messages, fixed, usual = _sorts(items[count:])
        if (self._messages and not messages) or (self._fixed and not fixed):
            return ValueSource(items)
        made = ValueSource.__new__(ValueSource)
        made.value, made._count = items, len(items)
        made._messages, made._fixed = self._messages, self._fixed
        made._usual = self._usual and usual
        made._items, made._looks = self._items, self._looks
        fresh = self._other(items, doubtful)
        if fresh or count < len(self._items):  # others know these: they keep what they know
            made._items, made._looks = self._items[:count], self._looks[:count]
            if self._fixed:
                made._looks = made._items
        for index, look in fresh:
            made._items[index], made._looks[index] = items[index], look
        made._items += items[count:]
        if not self._fixed:
            made._looks += made._look(items[count:])
        made._last = self._wholes_of(items, count, doubtful) if self._messages else []
        made._turn = self._turn + RECENT if self._turn + RECENT < count - RECENT else 0
        return made

    def _wholes_of(self, items: list[Any], count: int, doubtful: list[int]) -> list[_Whole | None]:
        """Returns the parts of the last items, as `_wholes` does; those just found unchanged are
        known."""
        known_from, start = self._count - len(self._last), max(0, len(items) - TAIL)
        if known_from <= start <= count and not doubtful:  # as mostly: it grew at its end
            known = self._last[start - known_from : count - known_from]
            return [*known, *map(_whole, items[count:])]
        return [
            self._last[index - known_from]
            if known_from <= index < count and index not in doubtful
            else _whole(items[index])
            for index in range(start, len(items))
        ]

    def _other(self, items: list[Any], doubtful: list[int]) -> list[tuple[int, Any]]:
        """Returns the compared items that are other objects, or look different, than before:
        indexes and looks."""
        looks = self._look([items[index] for index in doubtful])
        known, then = self._items, self._looks
        return [
            (index, look)
            for index, look in zip(doubtful, looks, strict=True)
            if items[index] is not known[index] or (not self._fixed and _differ(look, then[index]))
        ]


_Whole = tuple[tuple[Any, ...], list[Any]]
"""All that a message consists of, and what of it is empty, and can be filled in place."""


def _whole(item: Any) -> _Whole | None:
    """Returns the parts of an item; None if some of it can be changed in place."""
    parts = tuple(item.__dict__.values())
    # An empty list or dict is no doubt: once filled in place, it is one.
    hollow = [part for part in parts if type(part) not in _FIXED]
    return None if item.__pydantic_extra__ or any(hollow) else (parts, hollow)


_FIXED = frozenset({type(None), bool, int, float, str, bytes})
_TEXT = frozenset({str})
_USUALLY: Any = BaseMessage.__eq__


def _sorts(items: list[Any]) -> tuple[bool, bool, bool]:
    """Returns whether all items are messages, whether all are immutable values, and whether all are
    messages that are compared as LangChain's are."""
    kinds = set(map(type, items))  # few: thousands of messages are asked about by their classes
    messages = all(issubclass(kind, BaseMessage) for kind in kinds)
    usual = messages and all(kind.__eq__ is _USUALLY for kind in kinds)
    return messages, kinds <= _FIXED, usual


def _blocks(content: Any) -> Any:
    """Returns the content of a message that is a text; else the objects that it consists of, those
    in its blocks included."""
    return content if type(content) is str else tuple(_within(content))


def _within(part: Any) -> Iterator[Any]:
    yield part
    if type(part) is dict or type(part) is list:
        for one in part.values() if type(part) is dict else part:
            yield from _within(one)


def _glance(item: Any) -> tuple[Any, ...]:
    """Returns the objects that one consists of; another each time where that is not known."""
    if type(item) in SCALARS:
        return (item,)
    if isinstance(item, BaseMessage):
        return tuple(_within(item.content))
    if isinstance(item, dict):
        return (*item, *item.values())
    if isinstance(item, _CONTAINERS):
        return tuple(item)
    own = getattr(item, "__dict__", {})
    parts = [*own, *own.values(), *(getattr(item, name, None) for name in _slots(item.__class__))]
    if isinstance(item, BaseModel):
        for more in (item.__pydantic_extra__, item.__pydantic_private__):
            parts += (more or {}).values()
    return tuple(parts) if parts else (object(),)


_CONTAINERS = (list, tuple, set, frozenset, deque)


@cache
def _slots(cls: type) -> tuple[str, ...]:
    return tuple(slots_of(cls))


def _differ(now: Any, then: Any) -> bool:
    if type(now) is not tuple or type(then) is not tuple:
        return now is not then
    return len(now) != len(then) or not all(map(is_, now, then))


Sources = dict[str, ValueSource]


def sources_of(values: Mapping[str, Any]) -> Sources:
    """Returns the sources of values that were just built or stored."""
    return {
        channel: ValueSource(value)
        for channel, value in values.items()
        if type(value) not in _FIXED
    }


def advance(
    coder: Coder,
    old: Plain,
    sources: Sources,
    checkpoint: Mapping[str, Any],
    *,
    own: bool = False,
    exactly: bool = False,
) -> tuple[list[Op], Plain, Sources]:
    """Returns the ops that lead from a stored state to that of a checkpoint, with the new state and
    its sources.

    Args:
        old: the stored state; not touched. What is returned shares values with it, but no list of
            a channel.
        own: `old` is of no use to anybody any more, also where this raises: its lists of channels
            are changed in place. To copy thousands of items takes longer than to store a new one.
        sources: of the objects that it came from, for the channels where they are known.
        exactly: see `ValueSource.unchanged`.

    Raises:
        Unstorable: a value cannot be stored; names its path.
    """
    ops: list[Op] = []
    given_versions = checkpoint.get("channel_versions") or {}
    fresh: Sources = {}
    values = dict(old[VALUES]) if own else _with_own_lists(old[VALUES])
    given = checkpoint["channel_values"]
    for channel in old[VALUES]:
        if channel not in given:
            ops.append(Delete((VALUES, channel)))
            del values[channel]
    for channel, value in given.items():
        fixed = type(value) in _FIXED  # the same object is the same value: nothing to remember
        if fixed and values.get(channel, _ABSENT) is value:
            continue
        source = sources.get(channel) if channel in values else None
        version = given_versions.get(channel)
        if (
            source is not None
            and source.value is value
            and version is not None
            and old[VERSIONS].get(channel) == version
        ):
            fresh[channel] = source
            continue
        path = (VALUES, channel)
        if channel not in values:
            values[channel] = coder.encode(value, (channel,))
            ops.append(Set(path, values[channel]))
        elif source is not None and type(value) is list and type(values[channel]) is list:
            found = source.unchanged(value, exactly=exactly)
            fresh[channel] = _advance_list(coder, values[channel], source, value, found, path, ops)
            continue
        else:
            plain = coder.encode(value, (channel,))
            ops += diff(values[channel], plain, path)
            values[channel] = plain
        if not fixed:
            fresh[channel] = ValueSource(value)
    seen = _advance_seen(coder, old[SEEN], checkpoint.get("versions_seen") or {}, ops)
    versions = _advance_versions(coder, old[VERSIONS], given_versions, (VERSIONS,), ops)
    return ops, {VALUES: values, VERSIONS: versions, SEEN: seen}, fresh


def _with_own_lists(values: Mapping[str, Plain]) -> dict[str, Plain]:
    return {
        channel: list(value) if type(value) is list else value for channel, value in values.items()
    }


def _advance_list(
    coder: Coder,
    made: list[Plain],
    source: ValueSource,
    items: list[Any],
    found: tuple[int, list[int]],
    path: Path,
    ops: list[Op],
) -> ValueSource:
    """Makes the stored list equal to the items, of which this much was found unchanged."""
    front, doubtful = found
    for index in doubtful:
        plain = coder.encode(items[index], (*path[1:], index))
        if change := diff(made[index], plain, (*path, index)):
            ops += change
            made[index] = plain
    tail = [coder.encode(items[index], (*path[1:], index)) for index in range(front, len(items))]
    if front == len(made):
        if tail:
            ops.append(Append(path, tail))
    else:
        for op in diff(made[front:], tail, path):
            ops.append(_shifted(op, path, front))
    made[front:] = tail
    return source.extended(items, front, doubtful)


def _shifted(op: Op, path: Path, by: int) -> Op:
    """An op on a list's tail as one on the list."""
    depth = len(path)
    if len(op.path) > depth:
        moved = (*path, op.path[depth] + by, *op.path[depth + 1 :])
        return type(op)(moved, *(getattr(op, name) for name in op.__struct_fields__[1:]))
    if isinstance(op, Splice):
        return Splice(path, op.index + by, op.removed, op.values)
    assert isinstance(op, Append)
    return op


def _advance_versions(
    coder: Coder, old: Plain, new: Mapping[str, Any], path: Path, ops: list[Op]
) -> Plain:
    """Versions by name: of many, each step changes few."""
    made = dict(old)
    # Of hundreds, all but a few are the very objects of the step before: found without a loop here.
    for name in _differing(old, new, is_not):
        version = new[name]
        known = made.get(name, _ABSENT)
        if known == version and type(known) is type(version):
            if type(version) in _FIXED:
                made[name] = version
            continue
        made[name] = coder.encode(version, (name,), str(path[0]))
        ops.append(Set((*path, name), made[name]))
    _drop_others(made, new, path, ops)
    return made


def _advance_seen(coder: Coder, old: Plain, new: Mapping[str, Any], ops: list[Op]) -> Plain:
    """Versions by node."""
    changed = list(_differing(old, new, ne))
    if not changed and len(old) == len(new):
        return old
    made = dict(old)
    for node in changed:
        versions = new[node]
        if node not in made:
            made[node] = coder.encode_items(versions, (node,), "versions_seen")
            ops.append(Set((SEEN, node), made[node]))
        else:
            made[node] = _advance_versions(coder, made[node], versions, (SEEN, node), ops)
    _drop_others(made, new, (SEEN,), ops)
    return made


def _differing(
    old: Mapping[str, Any], new: Mapping[str, Any], differs: Callable[[Any, Any], bool]
) -> Iterable[str]:
    """The names whose values are new, or differ from the old ones."""
    count, names = len(old), list(new)
    if names[:count] == list(old):  # as mostly: new ones come last, and none needs to be looked up
        changed = compress(names, map(differs, old.values(), new.values()))
        return chain(changed, names[count:]) if len(names) > count else changed
    return compress(names, map(differs, map(old.get, names, repeat(_ABSENT)), new.values()))


def _drop_others(made: dict[str, Any], new: Mapping[str, Any], path: Path, ops: list[Op]) -> None:
    """Deletes the names that are not among the new ones, all of which are in."""
    if len(made) > len(new):
        for name in made.keys() - new.keys():
            ops.append(Delete((*path, name)))
            del made[name]


def begin(coder: Coder, checkpoint: Mapping[str, Any]) -> tuple[list[Op], Plain, Sources]:
    """Returns the whole state of a checkpoint that follows none, as one op that replaces
    everything."""
    _, state, sources = advance(coder, nothing(), {}, checkpoint)
    return [Set((), state)], state, sources


def nothing() -> Plain:
    """The state of a thread without a checkpoint."""
    return {VALUES: {}, VERSIONS: {}, SEEN: {}}


def is_state(state: Plain) -> bool:
    """Returns True if a state is that of a checkpoint. A rollback to the moment of a removal, or of
    a copy, makes that commit's state a line's state, until the next checkpoint is put there."""
    return type(state) is dict and state.keys() == {VALUES, VERSIONS, SEEN}
