"""Drafts: what `edit()` hands out. Changes go into the plain tree at once, and are recorded as ops.

Recording costs what changed, never what is there (I9). An op holds a value that was brought in by
reference, so it carries what that value is in the end; changes inside of it are not recorded.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from perdure.core.arguments.checks import COUNT_MAX, count
from perdure.core.arguments.names import shown
from perdure.core.draft.dicts import DraftDict
from perdure.core.draft.fields_made_anew import before_changes, deriving, is_rebuilt, made_anew
from perdure.core.draft.lists import DraftList
from perdure.core.draft.objects import kind_of_object
from perdure.core.draft.origins import Origins
from perdure.core.draft.place import DraftSession, Place, Proxy, place_of
from perdure.core.draft.sets import DraftSet
from perdure.core.draft.shown_members import shown_members
from perdure.core.draft.taking import take
from perdure.core.draft.undone_changes import CONTAINERS, AsItWas, Done, came_to_nothing, undo
from perdure.core.schema.schema import Schema
from perdure.core.types.objects import same_order
from perdure.core.values import ops as ops_module
from perdure.core.values.diff import text_splice
from perdure.core.values.ops import (
    Append,
    Delete,
    Increment,
    Move,
    Op,
    Set,
    SetAdd,
    SetRemove,
    Splice,
    TextSplice,
    add,
)
from perdure.core.values.plain_values import Path, Plain, copy, same
from perdure.errors import Conflict, SchemaError
from perdure.missing import MISSING

DraftSession.kinds.update({dict: DraftDict, list: DraftList, set: DraftSet})
DraftSession.kind_of_object = staticmethod(kind_of_object)


class Recording(DraftSession):
    """A draft of a state, and the record of all changes made to it.

    Args:
        schema: of the state.
        plain: its plain tree; changed in place.
        root_name: what paths in messages start with.
        typed: the live typed object, for reading Ephemeral fields only.

    Attributes:
        draft: what the user works with.
        ops: the changes, coalesced, in order.
        inverses: of each op, computed before it.
        plain: the root.
        done: every change in order, those that no op says (inside of what came in), too.
    """

    def __init__(
        self, schema: Schema[Any], plain: Plain, *, root_name: str = "state", typed: Any = None
    ) -> None:
        super().__init__(schema, plain, root_name)
        self.ops: list[Op] = []
        self.inverses: list[Op] = []
        self._count = 0  # of our own ops; planning may add more
        self.done: list[Done] = []
        self._origins = Origins(typed, self.done, self.copies.made)
        self.deriving: dict[int, dict[int, Place]] = {}
        """Changed objects, by what they are in, and are; see `fields_made_anew`."""
        self.shown: dict[int, Place] = {}
        """Changed values of unions that came in, by what they are; see `shown_members`."""
        self._puts: dict[int, dict[Any, tuple[int, Plain]]] = {}
        self._appends: dict[int, int] = {}
        self._ordered: set[int] = set()
        self._moved = False  # a container was moved, or taken out
        self._within = False  # something may have been changed inside of what came in
        self.torn = False
        """Set while a change is made: an exception in there leaves it set, and what is noted may
        not be what was changed. Then nothing more is taken, and the tree is to be thrown away."""

    def before(self) -> Plain:
        """Returns a copy of the plain tree as it was before any change."""
        return AsItWas(self.done).whole(self.plain)

    def close(self) -> None:
        """Ends the draft: every later use of a proxy raises SchemaError."""
        if self._origins.came and not self.torn and not self.closed:
            self.carried += self._origins.carried()
        self.closed = True
        self.draft = None  # it refers back here: a cycle, which only the garbage collector ends

    def rollback(self) -> Plain:
        """Puts the plain tree back exactly as it was, the order of its keys included, and returns
        it."""
        for inverse in reversed(self.inverses[self._count :]):
            self.plain = ops_module.apply(self.plain, inverse)
        while self.done:
            undo(self.done.pop())
        noted = (self._puts, self._appends, self.unstored, self.fresh, self.carried)
        for kept in (self.ops, self.inverses, *noted, self._origins.came):
            kept.clear()
        self.deriving.clear()
        self.shown.clear()
        self._count = 0
        self._moved = self._within = False
        return self.plain

    @property
    def changed(self) -> bool:
        """True if the tree differs from what it was before; False where every change was taken
        back."""
        if self.torn or not self.done:
            return self.torn
        if len(self.done) == 1 and self._appends:
            return True  # as of most edits: a list that only got longer
        return not came_to_nothing(self.done, self.fresh, moved=self._moved, within=self._within)

    def check_whole(self) -> None:
        """Refuses to continue after an exception that interrupted a change halfway.

        Raises:
            Conflict: a change was interrupted.
            Drifted: as `check_handed_out`.
        """
        if self.torn:
            raise Conflict(
                "a change of this draft was interrupted in the middle",
                target=self.root_name,
                hint="let the block end with the exception, and make the edit again",
            )
        self.check_handed_out()

    def check_handed_out(self) -> None:
        """Raises Drifted if a value that was given out as a whole was changed in place."""
        for given in self.handed_out:
            given.check(self.root_name)

    def kept(self, place: Place, name: str) -> Any:
        return self._origins.kept(place, name)

    def note_gone(self, place: Place, typed: Any) -> None:
        self._origins.note_gone(place, typed)

    def begin(self, place: Place) -> tuple[Path, bool]:
        if self.closed:
            self.check_open()  # raises
        if self.torn:
            self.check_whole()
        if place.frozen:
            raise SchemaError(
                "it is inside a tuple, which cannot change",
                target=place.text(),
                hint="assign a whole new tuple",
            )
        if place.pending and place.parent is not None:
            place.locate()
            self.put(place.parent, place.key, place.plain)
            place.pending = False  # behind it: done twice it changes nothing
        path, fresh = place.locate()
        if fresh:
            self._within = True
            if self.schema.registry.has_unions:
                for one in shown_members(place):
                    self.shown.setdefault(id(one.plain), one)
        if self.schema.registry.derives:
            for one in deriving(place):
                for around in one.line():
                    self.deriving.setdefault(id(around.plain), {})[id(one.plain)] = one
        return path, fresh

    def derive(self) -> None:
        """Makes anew what classes make of other fields, where the live object will be built from
        what the draft leaves."""
        changed = [one for one in self._changed(self.plain) if is_rebuilt(one, one.locate()[1])]
        closed, self.closed = self.closed, False
        try:
            for before in before_changes(changed, self._origins.holder, self.done):
                for name, value in made_anew(before).items():
                    self.put(before[0], name, value)
        finally:
            self.closed = closed

    def typed_copy(self, place: Place) -> Any:
        was, torn = [], self.torn
        try:
            changed = self._changed(place.plain)
            for before in (
                before_changes(changed, self._origins.holder, self.done) if changed else ()
            ):
                plain = before[0].plain
                for name, value in made_anew(before).items():
                    self.torn = True
                    was.append((plain, name, plain[name]))
                    plain[name] = value
            return place.typed()
        finally:
            for plain, name, value in reversed(was):
                plain[name] = value
            self.torn = torn

    def _changed(self, within: Plain) -> list[Place]:
        """The changed objects of classes that make fields of others."""
        return [one for one in self.deriving.get(id(within), {}).values() if one.stands]

    # Dicts and objects, and single items of lists

    def put(self, place: Place, key: Any, value: Plain) -> None:
        """Sets a key of a dict, or replaces an item of a list."""
        path, fresh = self.begin(place)
        target = place.plain
        old = target.get(key, MISSING) if type(target) is dict else target[key]
        if old is not MISSING and same(old, value) and same_order(place.child(key), old, value):
            return
        self.torn = True
        self._moved = self._moved or type(old) in CONTAINERS
        self.done.append(("put", target, key, old))
        target[key] = value
        self._bring_in(value)
        if self._origins.gone:
            self._origins.note_came(place, key, [value])
        self.waiting.pop((id(target), key), None)
        if not fresh:
            self._log_put(target, (*path, key), old, value)
        self.torn = False

    def _log_put(self, target: Plain, path: Path, old: Plain, value: Plain) -> None:
        puts = self._puts.setdefault(id(target), {})
        key = path[-1]
        earlier = puts.get(key)
        if type(target) is list:
            self._appends.pop(id(target), None)
        if earlier is None:
            puts[key] = (self._count, old)
            op, inverse = _put_op(path, old, value)
            self._log(op, inverse)
            return
        index, first = earlier
        op, inverse = _put_op(self.ops[index].path, first, value)
        self.ops[index] = op
        self.inverses[index] = inverse

    def drop(self, place: Place, key: Any) -> None:
        """Deletes a key of a dict."""
        path, fresh = self.begin(place)
        target = place.plain
        old = target[key]
        self.torn = True
        order = None
        if id(target) not in self._ordered and next(reversed(target)) != key:
            self._ordered.add(id(target))
            order = list(target)
        self._moved = self._moved or type(old) in CONTAINERS
        self.done.append(("drop", target, key, old, order))
        del target[key]
        if not fresh:
            self._puts.get(id(target), {}).pop(key, None)
            self._log(Delete((*path, key)), Set((*path, key), copy(old)))
        self.torn = False

    def increment(self, place: Place, key: Any, by: Any) -> None:
        path, fresh = self.begin(place)
        target = place.plain
        old = target[key]
        new = add(old, by)
        if not by and same(old, new):
            return
        self.torn = True
        self.done.append(("put", target, key, old))
        target[key] = new
        if not fresh:
            self._puts.get(id(target), {}).pop(key, None)
            exact = type(old) is int and type(by) is int  # (0.1 + 0.2) - 0.2 is not 0.1
            place_path = (*path, key)
            inverse: Op = Increment(place_path, -by) if exact else Set(place_path, old)
            self._log(Increment(place_path, by), inverse)
        self.torn = False

    # Lists

    def append(self, place: Place, values: list[Plain]) -> None:
        path, fresh = self.begin(place)
        target = place.plain
        if not values:
            return
        length = len(target)
        self.torn = True
        last = self.done[-1] if self.done else None
        grown = last and last[0] == "cut" and last[1] is target and last[2] + last[3] == length
        if last and grown and not last[4]:  # what took something away stays a change of its own
            self.done[-1] = (*last[:3], last[3] + len(values), [])
        else:
            self.done.append(("cut", target, length, len(values), []))
        target.extend(values)
        for value in values:
            self._bring_in(value)
        if self._origins.gone:
            self._origins.note_came(place, length, values)
        if not fresh:
            self._log_append(target, path, length, values)
        self.torn = False

    def _log_append(self, target: Plain, path: Path, length: int, values: list[Plain]) -> None:
        index = self._appends.get(id(target))
        if index is None:
            self._appends[id(target)] = self._count
            self._log(Append(path, list(values)), Splice(path, length, len(values), []))
            return
        op, inverse = self.ops[index], self.inverses[index]
        assert isinstance(op, Append) and isinstance(inverse, Splice)
        op.values.extend(values)
        inverse.removed += len(values)

    def splice(self, place: Place, index: int, removed: int, values: list[Plain]) -> None:
        """Replaces `removed` items from `index` on with `values`."""
        if not removed and index == len(place.plain):
            self.append(place, values)
            return
        path, fresh = self.begin(place)
        target = place.plain
        old = target[index : index + removed]
        if not removed and not values:
            return
        self.torn = True
        self._moved = self._moved or not CONTAINERS.isdisjoint(map(type, old))
        self.done.append(("cut", target, index, len(values), old))
        if not fresh:
            inverse = Splice(path, index, len(values), copy(old))
            self._forget_indexes(target)
            self._log(Splice(path, index, removed, list(values)), inverse)
        target[index : index + removed] = values
        for value in values:
            self._bring_in(value)
        if self._origins.gone or (old and values and self.schema.keeps_live):
            self._origins.note_came(place, index, values)
        self.torn = False

    def move(self, place: Place, source: int, target: int) -> None:
        path, fresh = self.begin(place)
        items = place.plain
        if source == target:
            return
        self.torn = True
        self._moved = True
        self.done.append(("move", items, source, target))
        items.insert(target, items.pop(source))
        if not fresh:
            self._forget_indexes(items)
            self._log(Move(path, source, target), Move(path, target, source))
        self.torn = False

    # Sets

    def change_set(self, place: Place, gone: list[Plain], come: list[Plain]) -> None:
        """Removes and adds members. `gone` must be in the set, `come` must not."""
        path, fresh = self.begin(place)
        members = place.plain
        self.torn = True
        if gone:
            self.done.append(("add", members, gone))
            members.difference_update(gone)
            if not fresh:
                self._log(SetRemove(path, list(gone)), SetAdd(path, list(gone)))
        if come:
            self.done.append(("remove", members, come))
            members.update(come)
            if not fresh:
                self._log(SetAdd(path, list(come)), SetRemove(path, list(come)))
        self.torn = False

    # Bookkeeping

    def _log(self, op: Op, inverse: Op) -> None:
        self.ops.append(op)
        self.inverses.append(inverse)
        self._count += 1

    def _bring_in(self, value: Plain) -> None:
        if type(value) in CONTAINERS:
            self.fresh[id(value)] = value

    def _forget_indexes(self, items: Plain) -> None:
        self._puts.pop(id(items), None)
        self._appends.pop(id(items), None)


def _put_op(path: Path, old: Plain, new: Plain) -> tuple[Op, Op]:
    if type(old) is str and type(new) is str:
        splice = text_splice(old, new, path)
        if splice is not None:
            gone = old[splice.index : splice.index + splice.removed]
            return splice, TextSplice(path, splice.index, len(splice.text), gone)
    inverse: Op = Delete(path) if old is MISSING else Set(path, copy(old))
    return Set(path, new), inverse


def view(schema: Schema[Any], plain: Plain, *, root_name: str = "state") -> Any:
    """Returns a read-only proxy of a plain tree, which looks like the typed object. Nothing is
    copied. What has no parts to be edited in place (a number, a tuple) is built."""
    if type(plain) not in DraftSession.kinds:
        return schema.build(plain)
    session = DraftSession(schema, plain, root_name)
    draft, session.draft = session.draft, None  # as where a recording is closed
    return draft


def increment(holder: Any, field: Any, by: Any = 1) -> None:
    """Adds to a number in a draft, as an op that says so: two increments merge, two values clash.

    Args:
        holder: the draft, or an object or dict in it; anything else is simply changed.
        field: the name or key of the number.
        by: what is added; negative to take away.

    Raises:
        SchemaError: the draft is closed, or there is no such number.
    """
    try:
        if isinstance(holder, dict | list):
            old, text = holder[field], f"[{shown(field)}]"
        else:
            old, text = getattr(holder, field), shown(field)
    except (LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise SchemaError(f"there is no number {shown(field)} to add to: {shown(error)}") from error
    place = place_of(holder) if isinstance(holder, Proxy) else None
    if type(old) not in _NUMBERS or type(by) not in _NUMBERS:
        raise SchemaError(
            f"{shown(by)} cannot be added to {shown(old)}",
            target=text if place is None else place.text(field),
        )
    if place is None:
        if isinstance(holder, dict | list):
            holder[field] = old + by
        else:
            setattr(holder, field, old + by)
        return
    try:
        added = add(old, by)
    except ArithmeticError as error:
        raise SchemaError(f"{by} cannot be added to {old}: {error}") from error
    session = place.session
    session.begin(place)
    if isinstance(holder, DraftDict):
        field = holder._key(field)
    elif isinstance(holder, DraftList):
        field = holder._at(field)
    new = take(place, field, added)
    if type(place.plain) is dict and field not in place.plain:
        session.put(place, field, new)  # it had its default: what it becomes is stored
    else:
        session.increment(place, field, by)


_NUMBERS = frozenset({int, float, Decimal})


def move(items: Any, source: int, target: int) -> None:
    """Moves an item of a list in a draft, as one op: takes it out at `source`, inserts it at
    `target`.

    Raises:
        IndexError: an index is out of range. SchemaError: the draft is closed.
    """
    given: object = items
    if not isinstance(given, list | DraftList):
        raise TypeError(f"perdure.move takes a list, not {shown(items)}")
    length = len(items)
    source = count(source, "source=", least=-COUNT_MAX)
    target = count(target, "target=", least=-COUNT_MAX)
    source, target = (at + length if at < 0 else at for at in (source, target))
    if not (0 <= source < length and 0 <= target < length):
        raise IndexError("move index out of range")
    if isinstance(items, DraftList):
        place = place_of(items)
        place.session.move(place, source, target)
    else:
        items.insert(target, items.pop(source))
