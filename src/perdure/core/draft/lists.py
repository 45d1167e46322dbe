"""Drafts of lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableSequence
from operator import index as to_index
from typing import Any, SupportsIndex

from perdure.core.draft.place import Place, Proxy, detached, place_of, seen_as
from perdure.core.draft.taking import LeavingContainers, take, take_all, take_over, take_slice
from perdure.core.values.plain_values import Plain


class DraftList(Proxy, MutableSequence[Any]):
    """A draft that looks like a list."""

    __slots__ = ()
    __perdure_kind__ = list
    __class__ = seen_as(lambda proxy: list)

    # Reading

    def __len__(self) -> int:
        place = place_of(self)
        place.session.check_open()
        return len(place.plain)

    def _at(self, index: SupportsIndex) -> int:
        number, length = to_index(index), len(self)
        number += length if number < 0 else 0
        if not 0 <= number < length:
            raise IndexError("list index out of range")
        return number

    def __getitem__(self, index: Any) -> Any:
        place = place_of(self)
        if isinstance(index, slice):
            return [place.read(at) for at in range(*index.indices(len(self)))]
        return place.read(self._at(index))

    def __iter__(self) -> Iterator[Any]:
        at = 0
        while at < len(self):
            yield place_of(self).read(at)
            at += 1

    def __reversed__(self) -> Iterator[Any]:
        for at in range(len(self) - 1, -1, -1):
            yield place_of(self).read(at)

    def __contains__(self, value: object) -> bool:
        return any(item is value or item == value for item in self)

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        place = place_of(self)
        for at in range(*slice(start, stop).indices(len(self))):
            item = place.read(at)
            if item is value or item == value:
                return at
        raise ValueError(f"{value!r} is not in list")

    def count(self, value: Any) -> int:
        return sum(item is value or item == value for item in self)

    def copy(self) -> list[Any]:
        """Returns a detached copy. It is deep, because a part of a state cannot stand elsewhere,
        too."""
        copied: list[Any] = place_of(self).detach()
        return copied

    # Writing

    def _begin(self) -> Place:
        place = place_of(self)
        place.session.begin(place)
        return place

    def append(self, value: Any) -> None:
        place = self._perdure
        place.session.append(place, [take(place, len(place.plain), value)])

    def extend(self, values: Iterable[Any]) -> None:
        place = self._begin()
        if isinstance(values, Proxy):
            values = detached(values)
        place.session.append(place, take_all(place, len(place.plain), list(values)))

    def insert(self, index: SupportsIndex, value: Any) -> None:
        place = self._begin()
        at = slice(to_index(index), None).indices(len(place.plain))[0]
        place.session.splice(place, at, 0, [take(place, at, value)])

    def pop(self, index: SupportsIndex = -1) -> Any:
        place = self._begin()
        if not place.plain:
            raise IndexError("pop from empty list")
        at = self._at(index)
        value = detached(place.read(at), goes=True)
        place.session.splice(place, at, 1, [])
        return value

    def remove(self, value: Any) -> None:
        place = self._begin()
        try:
            at = self.index(value)
        except ValueError:
            raise ValueError("list.remove(x): x not in list") from None
        place.session.splice(place, at, 1, [])

    def clear(self) -> None:
        place = self._begin()
        place.session.splice(place, 0, len(place.plain), [])

    def __setitem__(self, index: Any, value: Any) -> None:
        place = self._begin()
        if isinstance(index, slice):
            self._set_slice(place, index, value)
            return
        at = self._at(index)
        if not place.is_own(value, at):
            place.session.put(place, at, take_over(place, at, value))

    def _set_slice(self, place: Place, index: slice, value: Iterable[Any]) -> None:
        values = list(value)
        start, stop, step = index.indices(len(place.plain))
        if step != 1:
            places = range(start, stop, step)
            if len(places) != len(values):
                raise ValueError(
                    f"attempt to assign sequence of size {len(values)} "
                    f"to extended slice of size {len(places)}"
                )
            leaving = LeavingContainers(place.session, [place.plain[at] for at in places])
            pairs = zip(places, values, strict=True)
            taken = [take_over(place, at, one, leaving) for at, one in pairs]
            for at, one in zip(places, taken, strict=True):
                place.session.put(place, at, one)
            return
        stop = max(start, stop)
        self._replace(place, start, stop, take_slice(place, start, stop, values))

    def _replace(self, place: Place, start: int, stop: int, items: list[Plain]) -> None:
        """Replaces a stretch, without touching items that are the same at both of its ends."""
        old = place.plain[start:stop]
        shorter = min(len(old), len(items))
        front = 0
        while front < shorter and old[front] is items[front]:
            front += 1
        back = 0
        while back < shorter - front and old[-1 - back] is items[-1 - back]:
            back += 1
        middle = items[front : len(items) - back]
        place.session.splice(place, start + front, len(old) - front - back, middle)

    def __delitem__(self, index: Any) -> None:
        place = self._begin()
        if not isinstance(index, slice):
            place.session.splice(place, self._at(index), 1, [])
            return
        start, stop, step = index.indices(len(place.plain))
        if step == 1:
            place.session.splice(place, start, max(0, stop - start), [])
            return
        for at in sorted(range(start, stop, step), reverse=True):
            place.session.splice(place, at, 1, [])

    def sort(self, *, key: Callable[[Any], Any] | None = None, reverse: bool = False) -> None:
        place = self._begin()
        items = list(self)
        by = (lambda at: items[at]) if key is None else (lambda at: key(items[at]))
        order = sorted(range(len(items)), key=by, reverse=reverse)
        self._replace(place, 0, len(items), [place.plain[at] for at in order])

    def reverse(self) -> None:
        place = self._begin()
        self._replace(place, 0, len(place.plain), place.plain[::-1])

    def __iadd__(self, values: Iterable[Any]) -> Any:  # type: ignore[misc]
        self.extend(values)
        return self

    def __imul__(self, times: SupportsIndex) -> Any:
        number = to_index(times)
        if number < 1:
            self.clear()
        else:
            place = self._begin()
            values = place.detach() * 1
            for _ in range(number - 1):
                place.session.append(place, take_all(place, len(place.plain), values))
        return self

    # Comparing and joining

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, list):
            return NotImplemented
        return [*self, *other]

    def __radd__(self, other: Any) -> Any:
        if not isinstance(other, list):
            return NotImplemented
        return [*other, *self]

    def __mul__(self, times: SupportsIndex) -> Any:
        return list(self) * to_index(times)

    __rmul__ = __mul__

    def __eq__(self, other: object) -> Any:
        if not isinstance(other, list):
            return NotImplemented
        return len(self) == len(other) and all(
            mine == theirs for mine, theirs in zip(self, other, strict=True)
        )

    def __lt__(self, other: Any) -> Any:
        return list(self) < list(other) if isinstance(other, list) else NotImplemented

    def __le__(self, other: Any) -> Any:
        return list(self) <= list(other) if isinstance(other, list) else NotImplemented

    def __gt__(self, other: Any) -> Any:
        return list(self) > list(other) if isinstance(other, list) else NotImplemented

    def __ge__(self, other: Any) -> Any:
        return list(self) >= list(other) if isinstance(other, list) else NotImplemented

    __hash__ = None  # type: ignore[assignment]
