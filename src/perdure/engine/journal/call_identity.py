"""The identity of a call: its function's name, its arguments, and the object that it is bound to.

On replay a call gets the result of the recorded call with the same identity; a run that was set
back takes over the effects of such a call. So an identity that two different calls would share is
refused before it is recorded: for a tool call always, for a step if nothing distinguishes two calls
of it.
"""

from __future__ import annotations

import functools
import inspect
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any, get_origin

from msgspec import Struct

from perdure.core.schema.value_digest import (
    UNKNOWN,
    called_by,
    class_label,
    declared_key,
    digest,
    is_function,
    is_known,
    is_none_yet,
    module_name,
    parts_of,
)
from perdure.core.types.slots import content_of
from perdure.errors import NeedsAttention
from perdure.missing import MISSING
from perdure.system.user_errors import check_own

SELF = "self"
"""The name of the argument for the object whose method is called, as in most signatures."""

BOUND = "(bound)"
"""The name for the arguments that a `functools.partial` adds."""

DECLARED = "(identity)"
"""The name for all arguments, if the decorator's `identity=` distinguishes calls."""

KEY = "(key)"
"""The name for the key of a run that another one starts."""

CLOSED_MAX = 100
"""Values within what a function closes over that are looked into."""

QUESTION = "(question)"
SCHEMA = "(schema)"
DATA = "(data)"
"""The names for the words of a question, or for its declared key, for the type of its answer, and
for what it shows."""

KEYED = "key "
"""Begins what stands for a question that has a declared key."""

Form = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Makes the digests of a call in the form of recorded ones, which may be an older one: before its
question had a key, or its arguments were left out."""

FORM = 2
"""Of the digests: what the record says with which a run, or a turn, begins."""


def digests(arguments: Mapping[str, Any], unknown: list[Any] | None = None) -> dict[str, str]:
    """A short digest of each argument; see `core.identity`.

    Args:
        unknown: gets the objects in them that say nothing of themselves.
    """
    found: dict[str, str] = {}
    for name, value in arguments.items():
        found[name] = digest(value, unknown)
    return found


def declared(key: Any, unknown: list[Any]) -> dict[str, str]:
    """Returns the digests of the decorator's `identity=` for a call; see `digests`."""
    found = digests({DECLARED: key}, unknown)
    if is_none_yet(key):
        unknown.append(key)
        found[DECLARED] = UNKNOWN + found[DECLARED].removeprefix(UNKNOWN)
    return found


def bound_to(function: Callable[..., Any]) -> dict[str, Any]:
    """Returns what a callable adds to each of its calls: an object, or the arguments of
    partials."""
    found: dict[str, Any] = {}
    while isinstance(function, functools.partial):
        args, named = found.get(BOUND, ((), {}))
        found[BOUND] = [[*function.args, *args], {**function.keywords, **named}]
        function = function.func
    if isinstance(function, MethodType):
        found[SELF] = function.__self__
    elif not isinstance(function, type) and get_origin(function) is None:
        owner = getattr(function, "__self__", None) if is_function(function) else function
        if owner is not None and not isinstance(owner, ModuleType):
            found[SELF] = owner
    return found


# -- calls that nothing tells apart --------------------------------------------------------------


class Unsaid(Struct):
    """A call with objects in its arguments, or bound to one, that have no identity.

    Attributes:
        met: the objects of such calls in the run's execution, by the known part of the calls.
    """

    name: str
    kind: str
    digests: Mapping[str, str]
    objects: Sequence[Any]
    met: dict[int, Any]

    def check(self, target: str, *, recorded: bool) -> None:
        """Checks that the call can be made.

        Args:
            recorded: something is recorded at its place.

        Raises:
            NeedsAttention: it could be taken for another call. Nothing is recorded of it.
        """
        if self.kind == "tool":
            if not recorded:
                raise self._refused(target, f"nothing tells {self._words()} from another one")
            return
        data = [one for one in self.objects if not is_function(one)]
        if not data:
            return  # the variables that a function closes over are no arguments
        key = hash((self.name, *sorted(self.digests.items())))
        if not _same(self.met.setdefault(key, _held(data)), data):
            raise self._refused(
                target,
                f"it was called before with the same arguments, but for {self._words()}, "
                "and nothing tells the two from each other",
            )

    def _words(self) -> str:
        if DECLARED in self.digests:
            return "what identity= gave for this call"
        return " and ".join(dict.fromkeys(f"this {class_label(type(o))}" for o in self.objects))

    def _refused(self, target: str, problem: str) -> NeedsAttention:
        names = [name for name, found in self.digests.items() if found.startswith(UNKNOWN)]
        return NeedsAttention(
            f"{problem}: after a crash one call could get the result of the other",
            target=target,
            hint=hint_for(self.objects, names),
        )


def hint_for(objects: Sequence[Any], names: Sequence[str]) -> str:
    """The lines that put it right."""
    cls = class_label(type(objects[0]))
    name = names[0] if names else SELF
    if is_none_yet(objects[0]):
        return f"let identity= give what only this call has, not {objects[0]!r}; then run it again"
    key = _key_of(objects[0])
    if key is not MISSING and is_none_yet(key):
        return (
            f"its `__perdure_key__` is {key!r}, as that of any other that has none yet: give it "
            "one before the call (is it saved?); then run it again"
        )
    parameter = f"{name}: perdure.Ephemeral[{cls}]"
    return (
        f"say in class {cls} what one is known by: "
        "`__perdure_key__ = property(lambda self: self.…)`; "
        f"or, where it makes no difference which one it is, annotate the parameter: `{parameter}`; "
        "or give the decorator identity=, a function of the same arguments; then run it again"
    )


def _key_of(value: Any) -> Any:
    try:
        return declared_key(value)
    except Exception as error:
        check_own(error, lambda: declared_key(value))
        return MISSING


class Captured(Struct):
    """The distinction of a tool's function from others of its name. It is not part of the call's
    identity: the variables that it closes over, its defaults, and where it is.

    Tools made by a factory, for example one for each account, have the same name, and so may tools
    of two modules. Two of them called with the same arguments could be taken for each other after a
    crash.

    Attributes:
        values: what it closes over, by the variable's name, as it was when the tool was declared;
            and the defaults of parameters that the call does not pass.
        met: see `Unsaid.met`.
    """

    name: str
    digests: Mapping[str, str]
    values: Mapping[str, Any]
    home: Home
    met: dict[int, Any]

    def check(self, target: str, *, recorded: bool) -> None:
        """Checks that the call can be made; see `Unsaid.check`."""
        key = hash(("captured", self.name, *sorted(self.digests.items())))
        home, before = self.met.setdefault(key, (self.home, self.values))
        if recorded:
            return
        if home != self.home:
            was, now = home.name, self.home.name
            if home.file != self.home.file:
                was, now = f"{was} of {home.file}", f"{now} of {self.home.file}"
            raise NeedsAttention(
                f"another tool of this name, {was}, was called with the same arguments as "
                f"{now} now: after a crash one call could get the result of the other",
                target=target,
                hint="give one of the two a name= of its own; then run it again",
            )
        differing = [
            name
            for name, one in self.values.items()
            if not _is_same(before.get(name, MISSING), one)
        ]
        if differing:
            raise NeedsAttention(
                f"another tool of this name was called with the same arguments, and differs only "
                f"in what its function closes over, or has as defaults ({', '.join(differing)}): "
                "after a crash one call could get the result of the other",
                target=target,
                hint=f"pass {differing[0]} as an argument; or give each tool a name= of its own; "
                "then run it again",
            )


def _is_same(before: Any, now: Any, seen: dict[tuple[int, int], Any] | None = None) -> bool:
    """Returns True if it makes no difference which of two values a function closes over.

    Args:
        seen: the pairs that were met, by identity, and kept alive: a function may call itself.
    """
    if before is now:
        return True
    if type(before) is not type(now):
        return False
    if type(now) is FunctionType:
        if code_of(before) != code_of(now) or _origin(before) != _origin(now):
            return False
    elif is_known(said := digest(now)):
        return digest(before) == said
    seen = {} if seen is None else seen
    pair = id(before), id(now)
    if pair in seen:
        return True
    if len(seen) >= CLOSED_MAX:
        return False
    seen[pair] = before, now
    parts, others = _inside(before), _inside(now)
    if parts is None or others is None:
        return _is_equal(before, now)
    same = parts.keys() == others.keys()
    return same and all(_is_same(one, others[name], seen) for name, one in parts.items())


def _is_equal(before: Any, now: Any) -> bool:
    """Returns True if a class of code that compares says so of two of it."""
    if not isinstance(type(now).__eq__, FunctionType) or _holds_more(now):
        return False
    try:
        return (before == now) is True
    except Exception as error:
        check_own(error, lambda: before == now)
        return False


def _inside(value: Any) -> Mapping[Any, Any] | None:
    """Returns the parts of a value that says nothing of itself as a whole; None if it has none."""
    if isinstance(value, FunctionType):
        return {**captured_by(value), **defaults_of(value)}
    if isinstance(value, MethodType):  # another one at each access
        return {"function": value.__func__, SELF: value.__self__}
    if isinstance(value, functools.partial):
        return {"function": value.func, "args": value.args, "named": value.keywords}
    if type(value) in (list, tuple):
        return dict(enumerate(value))
    if type(value) in (dict, SimpleNamespace):
        named = value if type(value) is dict else vars(value)
        return named if all(type(name) is str for name in named) else None
    parts = parts_of(value)
    return None if parts is None or _holds_more(value) else dict(parts)


def _holds_more(value: Any) -> bool:
    """True if its fields do not tell it apart: it has a key, or is a list, say, as well."""
    return _key_of(value) is not MISSING or content_of(type(value)) is not None


class Home(Struct, frozen=True):
    """The place of a tool's function.

    Attributes:
        module: its module's name.
        file: its module's file, since two modules may have one name; "": it has none.
        name: that with its name in it.
        code: see `code_of`.
        made: a function made it, so there may be others of the same home at any time.
    """

    module: str
    file: str
    name: str
    code: CodeType | None
    made: bool


_homes: dict[str, tuple[Home, Mapping[str, Any]]] = {}
_shared: set[str] = set()
"""The names that several functions have, as tools."""


def note_home(name: str, function: Callable[..., Any], defaults: Mapping[str, Any]) -> Home:
    """Notes where a tool's function is."""
    called = called_by(function)
    module, file = _origin(called)
    within = getattr(called, "__qualname__", type(called).__qualname__)
    made = "<locals>" in within
    home = Home(module, file, f"{module}.{within}", code_of(called), made)
    defaults = {} if made else defaults  # those of a module stay in memory anyway
    first, before = _homes.setdefault(name, (home, defaults))
    same = before.keys() == defaults.keys() and all(before[n] is defaults[n] for n in defaults)
    if first != home or not same:
        _shared.add(name)
    return home


def _origin(function: Any) -> tuple[str, str]:
    """Returns the name and the file of a function's module. They stay if it is loaded anew; a
    notebook has no file."""
    known = getattr(inspect.unwrap(function), "__globals__", None)
    file = known.get("__file__") if isinstance(known, dict) else None
    real = os.path.realpath(file) if isinstance(file, str) else ""
    return module_name(str(getattr(function, "__module__", None) or "")), real


def is_shared(name: str) -> bool:
    """Returns True if several functions have a name, as tools."""
    return name in _shared


def code_of(function: Any) -> CodeType | None:
    """Returns a function's code, wherever it is in its file; None where it has none. A module that
    is loaded anew, or a cell of a notebook, has the same functions, on other lines."""
    code = getattr(function, "__code__", None)
    return _anywhere(code) if isinstance(code, CodeType) else None


def _anywhere(code: CodeType) -> CodeType:
    consts = (_anywhere(one) if isinstance(one, CodeType) else one for one in code.co_consts)
    return code.replace(co_firstlineno=1, co_linetable=b"", co_consts=tuple(consts))


def captured_by(function: Callable[..., Any]) -> dict[str, Any]:
    """Returns what a function closes over, by the variables' names."""
    inner = inspect.unwrap(called_by(function), stop=lambda one: hasattr(one, "__closure__"))
    cells = getattr(inner, "__closure__", None) or ()
    names = inner.__code__.co_freevars if cells else ()
    found: dict[str, Any] = {}
    for name, cell in zip(names, cells, strict=True):
        with suppress(ValueError):  # it is empty yet
            found[name] = cell.cell_contents
    return found


def defaults_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Returns the defaults of a function's parameters, by their names."""
    inner = inspect.unwrap(called_by(function))
    code, values = getattr(inner, "__code__", None), getattr(inner, "__defaults__", None) or ()
    if not isinstance(code, CodeType):
        return {}
    names = code.co_varnames[code.co_argcount - len(values) : code.co_argcount]
    return {**dict(zip(names, values, strict=True)), **(inner.__kwdefaults__ or {})}


def _held(objects: Sequence[Any]) -> list[Callable[[], Any]]:
    return [_reference(one) for one in objects]


def _reference(value: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(value)  # it may be large, and is nobody's business when it is gone
    except TypeError:
        return lambda: value


def _same(before: Sequence[Callable[[], Any]], now: Sequence[Any]) -> bool:
    return len(before) == len(now) and all(a() is b for a, b in zip(before, now, strict=True))


def differing(
    recorded: Mapping[str, str],
    now: Mapping[str, str],
    form: Form | None = None,
) -> list[str]:
    """Returns the arguments in which a recorded call differs from the one that is made now.

    Args:
        form: makes those of the call in the form of the recorded ones.
    """
    names = [name for name in {**recorded, **now} if recorded.get(name) != now.get(name)]
    if not names or form is None:
        return names
    then = form(recorded)
    return [name for name in names if recorded.get(name) != then.get(name)]
