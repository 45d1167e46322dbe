"""Targets with a bug each, as a decoder might have it: what the fuzzer must find, or it is blind.
Each needs damage: the inputs that it begins with pass."""

from __future__ import annotations

from perdure.core.values import codec
from tests.fuzz.mutating import Parts
from tests.fuzz.target import Looks, Target

WHOLE: Parts = [codec.encode({"kind": "step", "count": 3, "items": [1, 2, 3]})]


def _value(parts: Parts, looks: Looks) -> dict[str, object] | None:
    with looks.look(codec.UndecodableError):
        value = codec.decode(parts[0]) if parts else None
        return value if type(value) is dict else None
    return None


def _raises(parts: Parts, looks: Looks) -> None:
    value = _value(parts, looks)
    if value is not None:
        value["kind"]  # a KeyError, where the map has no such key


def _loops(parts: Parts, looks: Looks) -> None:
    value = _value(parts, looks)
    while value is not None and value.get("count") != 3:
        pass


def _allocates(parts: Parts, looks: Looks) -> None:
    value = _value(parts, looks)
    count = value.get("count") if value is not None else None
    if type(count) is int and count > 1 << 30:
        bytearray(min(count, 1 << 34))  # room for what a length says that is a lie


def _recurses(parts: Parts, looks: Looks) -> None:
    def depth(value: object) -> int:
        items = value if type(value) is list else []
        items = list(value.values()) if type(value) is dict else items
        return 1 + max((depth(item) for item in items), default=0)

    value = _value(parts, looks)
    if value is not None:
        depth(value)


def _dies(parts: Parts, looks: Looks) -> None:
    import os

    value = _value(parts, looks)
    if value is not None and value.get("count") != 3:
        os.abort()  # as C code does that trusts a length


def _waits(parts: Parts, looks: Looks) -> None:
    import threading

    value = _value(parts, looks)
    if value is not None and value.get("count") != 3:
        threading.Event().wait()


def _inputs() -> dict[str, Parts]:
    return {"whole": WHOLE}


raises = Target("raises", _raises, inputs=_inputs)
loops = Target("loops", _loops, inputs=_inputs)
allocates = Target("allocates", _allocates, inputs=_inputs)
recurses = Target("recurses", _recurses, inputs=_inputs)
dies = Target("dies", _dies, inputs=_inputs)
waits = Target("waits", _waits, inputs=_inputs)
