"""Digests that identify values: equal in every process for equal values.

Calls are told apart by the digests of their arguments, which may be anything: a list of models, a
set of enums, a class. So a value is walked by the kinds of its parts, not by a schema. An object
that does not describe itself, a client for example, stands in the digest by its class alone, and
makes it the digest of an *unknown* value: two such digests differ only if the values differ, but
equal ones prove nothing.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import functools
import inspect
import math
import operator
import re
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from enum import Enum
from hashlib import sha256
from types import FunctionType, MethodType
from typing import Any, get_origin

import msgspec

from perdure.core.schema.schema import Schema
from perdure.core.types.annotations import EphemeralMark
from perdure.core.types.hints import hints_of
from perdure.core.types.slots import content_of, slots_of
from perdure.core.types.validation import text_types
from perdure.core.values import codec
from perdure.core.values.base_values import BASE_VALUES, StandIn
from perdure.core.values.plain_values import SCALARS, STEADY, Plain, check_zone, take
from perdure.errors import PerdureError, Unstorable
from perdure.missing import MISSING
from perdure.system.user_errors import check_own

KEY = "__perdure_key__"
"""The name of an object's declared key: a value, a property or a method."""

TYPED = "2:"
"""Begins the digest of a value with types that plain values do not have."""

UNKNOWN = "?"
"""Begins the digest of a value in which something says nothing of itself."""

FINER = "nanosecond", "nanoseconds"  # of pandas, whose code in C shows no slots

DIGEST_SIZE = 8
AS_IT_IS = frozenset({str, int, float, bool, bytes})
"""Types whose values are plain whatever they hold: most arguments are of them."""

DEPTH_MAX = 100
"""Containers within containers; what is deeper is unknown."""


def digest(value: Any, unknown: list[Any] | None = None) -> str:
    """Returns a short digest of a value: 16 hex digits for a plain one, else such behind TYPED or
    UNKNOWN.

    Args:
        unknown: receives the objects in it that do not describe themselves.
    """
    if type(value) in AS_IT_IS:
        return shorten(value)
    try:
        return shorten(take(value))
    except PerdureError:  # types, a cycle
        pass
    except RuntimeError as error:  # too deep; another thread changes it
        check_own(error, lambda: take(value))
    walk = _DigestWalk()
    try:
        said = shorten(walk.say(value, 0))
    except Exception as error:  # of the caller's code, or the stack was deep already
        check_own(error, lambda: _DigestWalk().say(value, 0))
        walk.unknown, said = [value], shorten(class_label(type(value)))
    if unknown is not None:
        unknown += walk.unknown
    return (UNKNOWN if walk.unknown else TYPED) + said


def shorten(plain: Plain) -> str:
    """Returns the first bytes of the hash of a plain value's canonical form, in hex."""
    return sha256(codec.canonical(plain)).digest()[:DIGEST_SIZE].hex()


def is_known(found: str) -> bool:
    """True if equal digests of this form mean equal values."""
    return not found.startswith(UNKNOWN)


def declared_key(value: Any) -> Any:
    """Returns the key that an object declares for itself; MISSING if it declares none."""
    if isinstance(value, type):
        return MISSING  # what a class says is said of its instances
    # Not looked up by `__getattr__`: a proxy that has every attribute would make a call for it.
    if not any(KEY in one.__dict__ for one in type(value).__mro__):
        try:
            if KEY not in object.__getattribute__(value, "__dict__"):
                return MISSING
        except AttributeError:
            return MISSING
    key = getattr(value, KEY)
    return key() if callable(key) else key


def parts_of(value: Any) -> list[tuple[str, Any]] | None:
    """Returns the fields of an object that identify it; None for one without declared fields."""
    kind: type = type(value)
    parts = _parts_of(kind)
    if parts is None:
        return None
    found = [(name, _attribute(value, name)) for name in parts.names]
    return [(name, item) for name, item in (*found, *_extra(parts, value)) if item is not MISSING]


def is_none_yet(key: Any) -> bool:
    """True if a key is one that unsaved objects share, as a row has before it is saved: None, NaN,
    or only these."""
    if isinstance(key, tuple | list):
        return bool(key) and all(is_none_yet(part) for part in key)
    if isinstance(key, Decimal):
        return key.is_nan()
    return key is None or (isinstance(key, float) and math.isnan(key))


def class_label(cls: type) -> str:
    """Returns a class's name as identities have it: without its module, because code moves between
    files."""
    return cls.__qualname__.rsplit("<locals>.", 1)[-1]


class _DigestWalk:
    """A walk that turns one value into plain lists, each of which begins with its kind: so no two
    values that differ give the same. Scalars stand for themselves."""

    def __init__(self) -> None:
        self.unknown: list[Any] = []
        self._open: set[int] = set()

    def say(self, value: Any, depth: int) -> Plain:
        kind = type(value)
        if kind in STEADY:
            return value
        if depth > DEPTH_MAX or id(value) in self._open:
            return self._unknown(value)
        self._open.add(id(value))
        before = len(self.unknown)
        try:
            return self._say(value, kind, depth + 1)
        except RuntimeError:  # the stack was deep already, or another thread changes it
            raise
        except Exception as error:  # of its own code: what else there is around it still counts
            check_own(error, lambda: _DigestWalk()._say(value, kind, depth + 1))
            del self.unknown[before:]
            return self._unknown(value)
        finally:
            self._open.discard(id(value))

    def _say(self, value: Any, kind: type, depth: int) -> Plain:
        made = _CONTAINERS.get(kind)
        if made is not None:
            return self._container(made, value, depth)
        if kind in SCALARS:
            return _moment(value)
        if isinstance(value, StandIn):
            return self.say(value.plain(), depth)
        key = declared_key(value)
        if key is not MISSING:
            if is_none_yet(key):
                return self._unknown(value)
            return ["key", class_label(kind), self.say(key, depth)]
        if isinstance(value, Enum):
            return ["enum", class_label(kind), value.name or self.say(value.value, depth)]
        parts = _parts_of(kind)
        if parts is not None:
            return self._object(parts, value, depth)
        if isinstance(value, type) or get_origin(value) is not None:
            path = _class_path(value)
            # A class made in a function is another one at each call: its name does not identify it.
            return ["type", path] if "<locals>" not in path else self._unknown(value)
        if isinstance(value, Callable):  # type: ignore[arg-type]
            said = self._callable(value, depth)
            if said is not None:
                return said
        return self._rest(value, kind, depth)

    def _container(self, tag: str, value: Any, depth: int) -> Plain:
        if tag in ("list", "tuple"):
            return [tag, *(self.say(one, depth) for one in value)]
        if tag == "dict":
            pairs = [[self.say(key, depth), self.say(one, depth)] for key, one in value.items()]
            return [tag, *sorted(pairs, key=lambda pair: codec.canonical(pair[0]))]
        # The order of a set is not the same in two processes.
        return [tag, *sorted((self.say(one, depth) for one in value), key=codec.canonical)]

    def _object(self, parts: _Parts, value: Any, depth: int) -> Plain:
        pairs = []
        for name in parts.names:
            item = _attribute(value, name)
            if item is MISSING:
                continue
            if name not in parts.optional:
                pairs.append([name, self.say(item, depth)])
                continue
            before = len(self.unknown)
            said = self.say(item, depth)
            if len(self.unknown) == before:
                pairs.append([name, said])
            del self.unknown[before:]
        more = [[name, self.say(item, depth)] for name, item in _extra(parts, value)]
        if parts.has_content:  # a list, say, that is a dataclass as well
            content = self._content(value, depth)
            more.append(["", self._unknown(value) if content is None else content])
        return ["object", class_label(type(value)), pairs, more]

    def _callable(self, value: Any, depth: int) -> Plain:
        if isinstance(value, MethodType):
            return ["method", self.say(value.__self__, depth), value.__name__]
        if isinstance(value, functools.partial):
            inner, args, more = value.func, list(value.args), value.keywords
            return ["partial", *(self.say(one, depth) for one in (inner, args, more))]
        path = _function_path(value)
        return None if path is None else ["function", path]

    def _rest(self, value: Any, kind: type, depth: int) -> Plain:
        if isinstance(value, _PLAIN):
            return ["sub", class_label(kind), self._content(value, depth), self._more(value, depth)]
        if isinstance(value, text_types()) or hasattr(kind, "unicode_string"):
            return ["text", class_label(kind), str(value)]
        apart = self._content(value, depth)
        if apart is not None:
            return ["apart", class_label(kind), apart]
        if any(value is one for one in _SINGLE):
            return ["single", class_label(kind)]
        content = self._buffer(value, depth)
        if content is not None:
            more = self._more(value, depth)  # such as the mask of an array
            return ["buffer", class_label(kind), *content, *([more] if more else [])]
        schema = _leaf_schema(kind)
        if schema is not None:
            try:
                plain = schema.take(value, (), aliases_refused=False)
            except Exception as error:  # it has no plain form; whatever its own code raises
                check_own(error, lambda: schema.take(value, (), aliases_refused=False))
                return self._unknown(value)
            return ["leaf", class_label(kind), self.say(plain, depth)]
        return self._unknown(value)

    def _content(self, value: Any, depth: int) -> Plain:
        """Returns what a value holds as one of a kind of the standard library; None if it is of
        none that is known."""
        for base, take_apart in (*_BASES, *_APART):
            if isinstance(value, base):
                return self.say(take_apart(value), depth)
        return None

    def _buffer(self, value: Any, depth: int) -> list[Plain] | None:
        """Returns the format and shape of an array, and the hash of its bytes: there may be many.
        Of one of objects what these are: its bytes are their addresses."""
        try:
            view = memoryview(value)
        except Exception as error:  # it is no array
            check_own(error, lambda: memoryview(value))
            return None
        shape = list(view.shape or ())
        if not _POINTER.search(_NAMES.sub("", view.format)):
            content = sha256(view if view.c_contiguous else view.tobytes()).digest()
            kind = str(_attribute(value, "dtype"))  # of a moment the format has no unit
            return [view.format, shape, content, *([kind] if "time" in kind else [])]
        items = value.tolist() if hasattr(value, "tolist") else MISSING
        return None if items is MISSING else [view.format, shape, self.say(items, depth)]

    def _more(self, value: Any, depth: int) -> Plain:
        """Returns the attributes of an instance of a subclass of a plain kind."""
        kept = _attribute(value, "__dict__")
        names = {*FINER, *slots_of(type(value)), *(() if kept is MISSING else kept)}
        found = [(name, _attribute(value, name)) for name in sorted(names)]
        return [[name, self.say(item, depth)] for name, item in found if item is not MISSING]

    def _unknown(self, value: Any) -> Plain:
        self.unknown.append(value)
        name = value.__qualname__ if isinstance(value, FunctionType) else ""
        return ["unknown", class_label(type(value)), name]


_CONTAINERS: Mapping[type, str] = {
    list: "list",
    tuple: "tuple",
    dict: "dict",
    set: "set",
    frozenset: "frozenset",
}


def _moment(value: dt.datetime | dt.time) -> Plain:
    """Returns a datetime or a time as it is, if its zone can be stored."""
    try:
        check_zone(value, (), "")
    except Unstorable:
        naive = value.replace(tzinfo=None, fold=0).isoformat()
        zone = type(value.tzinfo).__qualname__
        return ["moment", naive, value.fold, str(value.utcoffset()), value.tzname(), zone]
    return value


# -- objects with fields -----------------------------------------------------------------------


class _Parts(msgspec.Struct):
    """The parts of a class's instances that identify them."""

    names: tuple[str, ...]
    optional: frozenset[str] = frozenset()
    keeps_extra: bool = False
    has_content: bool = False


def _extra(parts: _Parts, value: Any) -> list[tuple[str, Any]]:
    extra: Any = _attribute(value, "__pydantic_extra__") if parts.keeps_extra else None
    return sorted(extra.items()) if isinstance(extra, dict) else []


@functools.lru_cache(1024)
def _parts_of(cls: type) -> _Parts | None:
    """Returns None for a class without declared fields."""
    optional = frozenset[str]()
    if hasattr(cls, "__pydantic_fields__"):
        fields = cls.__pydantic_fields__
        live = {name for name, info in fields.items() if info.exclude or _marked(info.metadata)}
        kept = tuple(name for name in fields if name not in live)
        has_content = content_of(cls) is not None
        return _Parts(kept, keeps_extra=True, has_content=has_content)
    if dataclasses.is_dataclass(cls):
        own = dataclasses.fields(cls)
        names = [one.name for one in own]
        optional = frozenset(one.name for one in own if not one.compare)
    elif issubclass(cls, msgspec.Struct):
        names = list(cls.__struct_fields__)
    elif hasattr(cls, "__attrs_attrs__"):
        names = [one.name for one in cls.__attrs_attrs__]
    else:
        return None
    hints = hints_of(cls)
    left = {name for name in names if _marked(getattr(hints.get(name), "__metadata__", ()))}
    kept = tuple(name for name in names if name not in left)
    has_content = not issubclass(cls, msgspec.Struct) and content_of(cls) is not None
    return _Parts(kept, optional, has_content=has_content)


def _marked(metadata: Iterable[Any]) -> bool:
    return any(isinstance(mark, EphemeralMark) for mark in metadata)


def _attribute(value: Any, name: str) -> Any:
    try:
        return object.__getattribute__(value, name)
    except AttributeError:
        return MISSING


@functools.lru_cache(256)
def _leaf_schema(cls: type) -> Schema[Any] | None:
    """Returns the schema of a class that a library can take apart; None where none can."""
    try:
        return _made_schema(cls)
    except Exception as error:
        check_own(error, lambda: _made_schema(cls))
        return None


def _made_schema(cls: type) -> Schema[Any]:
    schema: Schema[Any] = Schema(cls, id=class_label(cls))
    schema.root  # noqa: B018  # made now: it raises where the class cannot be stored
    return schema


_NAMES = re.compile(":[^:]*:")
_POINTER = re.compile("[OP&zX]|Z(?![fdg])")
"""In the format of an array: names of fields; objects and pointers. A Z may begin a complex
number."""


# -- functions and classes ---------------------------------------------------------------------


def _class_path(cls: Any) -> str:
    """Returns the path of a class or a generic alias as a value. Nothing else distinguishes those
    of two modules."""
    if isinstance(cls, type) and get_origin(cls) is None:
        return f"{module_name(cls.__module__)}.{cls.__qualname__}"
    return repr(cls).replace("__main__.", module_name("__main__") + ".")


def _function_path(function: Any) -> str | None:
    """Returns the path of a function that its name identifies; None for a closure, a lambda, or
    anything else."""
    name = getattr(function, "__qualname__", None)
    if not isinstance(name, str) or "<" in name or not is_function(function):
        return None
    module = getattr(function, "__module__", None) or ""
    # It closes over variables, or wraps another function, whose name it may have.
    more = getattr(function, "__closure__", None) or hasattr(function, "__wrapped__")
    if more and _found_at(module, name) is not function:
        return None
    owner = getattr(function, "__self__", None)
    if owner is not None and not isinstance(owner, types.ModuleType | type):
        return None
    return f"{module_name(module)}.{name}"


def _found_at(module: str, name: str) -> Any:
    """Returns the object that a module's name leads to. A wrapper made by a decorator has the name
    of what it wraps, and so does the next one, which holds something else."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def called_by(function: Any) -> Any:
    """Returns the function that a partial calls, also through further ones; any other as it is."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def is_function(value: Any) -> bool:
    """True if it is a function, of Python or C, and not an object of a class with `__call__`. One
    of C has a name of its own: what has none, as `operator.itemgetter`, is known by what it
    holds."""
    if isinstance(value, FunctionType | types.BuiltinFunctionType):
        return True
    if not callable(value) or isinstance(value, type) or _called_by_python(type(value)):
        return False
    return isinstance(getattr(value, "__qualname__", None), str)


def _called_by_python(cls: type) -> bool:
    return isinstance(inspect.getattr_static(cls, "__call__", None), FunctionType)


def module_name(name: str) -> str:
    """Returns a module's name. A script that is run, and the same file imported by a worker, are
    one module."""
    if name != "__main__":
        return name
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name).removesuffix(".__main__")
    path = str(getattr(main, "__file__", "") or name)
    return re.split(r"[/\\]", path)[-1].removesuffix(".py")


# -- kinds that are not plain, and say what they hold ------------------------------------------

_BASES: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (collections.OrderedDict, lambda value: list(value.items())),  # its order is a part of it
    (bool, bool),
    *BASE_VALUES,
)
"""Plain kinds, with what gives a subclass's value without its own code. The first that fits."""
_PLAIN = tuple(kind for kind, _ in _BASES)

_APART: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (bytearray, bytes),
    (range, lambda value: [value.start, value.stop, value.step]),
    (slice, lambda value: [value.start, value.stop, value.step]),
    (collections.deque, lambda value: [list(value), value.maxlen]),
    (collections.ChainMap, lambda value: list(value.maps)),
    (types.MappingProxyType, dict),
    (types.SimpleNamespace, vars),
    (types.ModuleType, lambda value: value.__name__),
    (re.Pattern, lambda value: [value.pattern, value.flags]),
    (dt.timezone, lambda value: [value.utcoffset(None), value.tzname(None)]),
    (operator.attrgetter, lambda value: value.__reduce__()),
    (operator.itemgetter, lambda value: value.__reduce__()),
    (operator.methodcaller, lambda value: value.__reduce__()),
    (BaseException, lambda value: [list(value.args), vars(value)]),
)
"""Other kinds of the standard library, with what they are made of."""

_SINGLE: tuple[Any, ...] = (
    MISSING,
    Ellipsis,
    NotImplemented,
    msgspec.UNSET,
    msgspec.NODEFAULT,
)
"""Values that are the only ones of their class."""
