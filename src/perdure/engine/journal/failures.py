"""Exceptions on their way into the journal and back: as data, and raised again as they were."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from perdure.core.values import codec
from perdure.core.values.plain_values import Plain, take
from perdure.errors import CallFailed, PerdureError, Unstorable
from perdure.system.user_errors import check_own, of_code

ATTRIBUTE_MAX = 1000
"""Bytes of one attribute of an error; larger ones are not kept."""

PARTS_MAX = 10_000
"""Bytes of the parts of a validation error; larger ones are not kept."""

MEMBERS = ("errno", "strerror", "filename", "filename2", "name", "path")
"""Attributes of built-in exceptions outside of their arguments and `__dict__`."""

HELD_MAX = 1000
"""The most errors in one record: of groups, and those that others carry."""

LEVELS_MAX = 20
"""The deepest nesting of errors."""

ARGS = "args"
"""Stands among what is lost for arguments that are not plain: the words are there instead."""

_CAUSE: Any = vars(BaseException)["__cause__"]
_TRACEBACK: Any = vars(BaseException)["__traceback__"]
"""As every exception has them, whatever its class says."""

_WITH_MEMBERS = (OSError, ImportError, NameError, AttributeError)
_OWN = ("problem", "target", "hint")


class Lost:
    """Stands for an attribute of an error that is not plain data: also the first time, so that a
    function that reads it behaves the same on replay. Any use of it raises an error with a hint."""

    __slots__ = ("_says",)

    def __init__(self, kind: type, name: str) -> None:
        self._says = (
            f"{name!r} of {kind.__qualname__} is not kept: only the plain data of an error is "
            "recorded, and raised again on replay. Look at it inside the step or tool: catch "
            "the error there, and return or raise what later code depends on"
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_says":
            raise AttributeError(name)
        raise AttributeError(self._says)

    def __repr__(self) -> str:
        return "<not kept>"


class CallCancelled(PerdureError):
    """Stands in the journal for a call that was cancelled with its task, not with the run."""


def _said_by(error: BaseException) -> str:
    return "".join((str(error),))  # of the plain type, also where it says a subclass of str


def words(error: BaseException) -> str:
    """Returns the error's message, even if its own `__str__` fails."""
    try:
        return _said_by(error)
    except BaseException as failed:
        check_own(failed, lambda: _said_by(error))
        return f"(its words cannot be had: {type(failed).__name__})"


def error_record(error: BaseException) -> dict[str, Plain]:
    """Returns an exception as plain data: its type's name, its message, its plain attributes, and
    the names of the others (``lost``).

    It is rebuilt at once to see if it is of the same type with the same message. If not, the record
    says ``stand_in``: it is raised again as `CallFailed`. Each member of a group is treated as if
    it were alone. This never fails, whatever the error's own code does: otherwise the call would
    have no outcome.
    """
    return _held_record(error, _Holders((), _Room()))


class _Room(Struct):
    """For how many more errors there is room in a record."""

    left: int = HELD_MAX


class _Holders(Struct, frozen=True):
    """The errors that hold the one whose record is made, each in the one before."""

    errors: tuple[BaseException, ...]
    room: _Room

    def refuse(self, error: BaseException) -> bool:
        """Returns True if an error holds itself, or is one too many."""
        within = any(one is error for one in self.errors)
        return within or len(self.errors) == LEVELS_MAX or not self.room.left


def _held_record(error: BaseException, holders: _Holders) -> dict[str, Plain]:
    left = holders.room.left
    for _ in range(2):  # what comes from outside once is not the error's own
        try:
            holders.room.left = left
            if holders.refuse(error):
                break
            holders.room.left -= 1
            return _whole_record(error, _Holders((*holders.errors, error), holders.room))
        except BaseException:
            continue
    name = type.__getattribute__(type(error), "__qualname__")
    module = type.__getattribute__(type(error), "__module__")
    return {"type": f"{module}:{name}", "text": words(error), "args": [], "stand_in": True}


def _whole_record(error: BaseException, holders: _Holders) -> dict[str, Plain]:
    kind = type(error)
    lost: list[str] = []
    args, nested = _args(error, holders, lost)
    record: dict[str, Plain] = {
        "type": f"{kind.__module__}:{kind.__qualname__}",
        "text": words(error),
        "args": args,
    }
    cause = _CAUSE.__get__(error)
    if isinstance(cause, Exception):
        record["cause"] = _held_record(cause, holders)
    if issubclass(kind, BaseExceptionGroup):
        group: Any = error
        record["exceptions"] = [_held_record(one, holders) for one in group.exceptions]
    attributes = _attributes(error, nested, holders, lost)
    members = _members(error)
    parts = ("attributes", attributes), ("members", members), ("nested", nested), ("lost", lost)
    for part, found in parts:
        if found:
            record[part] = found
    if kind.__module__.startswith("pydantic_core"):
        _add_validation(record, error)
    if not _comes_back(error, record):
        record["stand_in"] = True
    return record


def as_replayed(error: Exception, record: Mapping[str, Any], target: str) -> Exception:
    """Returns the error that a call which left with this error raises: the same the first time as
    on replay, with the original traceback."""
    if not _differs(record):
        return error
    again = rebuild_error(record, target)
    made: BaseException | None = again
    was: BaseException | None = error
    while made is not None and was is not None:
        _TRACEBACK.__set__(made, _TRACEBACK.__get__(was))
        made, was = _CAUSE.__get__(made), _CAUSE.__get__(was)
    return again


def _stands_in(record: Mapping[str, Any]) -> bool:
    """Returns True if it, or a member of it, stands for an error that cannot be restored."""
    return bool(record.get("stand_in")) or any(map(_stands_in, record.get("exceptions", ())))


def _differs(record: Mapping[str, Any]) -> bool:
    """Returns True if the error raised again differs from the original."""
    if record.get("stand_in") or record.get("lost"):
        return True
    held = [*record.get("exceptions", ()), *record.get("nested", {}).values()]
    return any(map(_differs, [*held, record["cause"]] if "cause" in record else held))


def rebuild_error(record: Mapping[str, Any], target: str) -> Exception:
    """The exception of a record: of its own type if that is loaded here, else a stand-in.

    The type is only looked up among loaded modules, never imported (I10).
    """
    error = None if record.get("stand_in") else _again(record, target)
    if error is not None:
        return error
    path = str(record["type"])
    module, _, name = path.partition(":")
    hint = ""
    if _loaded(path) is None and "<locals>" not in name:
        hint = f"{module}.{name} is not loaded here: import it first; or, where it was moved or "
        hint += "renamed, leave its old name in its old module, too"
    return CallFailed(f"{name}: {record['text']}", target=target, hint=hint)


def _loaded(path: str) -> type[Exception] | None:
    module, _, name = path.partition(":")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) and issubclass(found, of_code()) else None


def _again(record: Mapping[str, Any], target: str) -> Exception | None:
    found = _loaded(str(record["type"]))
    if found is None:
        return None
    try:
        return _rebuilt(found, record, target)
    except Exception as error:  # not made to be rebuilt
        check_own(error, lambda: _rebuilt(found, record, target))
        return None


def _rebuilt(kind: type[Exception], record: Mapping[str, Any], target: str) -> Exception:
    if "validation" in record:
        return _validation_error(kind, record["validation"])
    nested = {name: rebuild_error(one, "") for name, one in record.get("nested", {}).items()}
    args = [nested.pop(str(place), arg) for place, arg in enumerate(record["args"])]
    if "exceptions" in record:
        args.append([rebuild_error(one, target) for one in record["exceptions"]])
    error = _made(kind, args)
    if isinstance(error, PerdureError):
        error.problem, error.target, error.hint = str(record["text"]), target, ""
    for name, value in {**record.get("attributes", {}), **nested}.items():
        _give(error, name, value)
    for member, value in record.get("members", {}).items():
        value = Path(value["path"]) if isinstance(value, dict) else value
        BaseException.__setattr__(error, member, value)
    for name in record.get("lost", ()):
        if name != ARGS:
            _give(error, str(name), Lost(kind, str(name)))
    if "cause" in record:
        _CAUSE.__set__(error, rebuild_error(record["cause"], ""))
    return error


def _give(error: Exception, name: str, value: Any) -> None:
    """Sets an attribute, whatever its class does when one is set."""
    try:
        object.__setattr__(error, name, value)  # one of a slot, too
    except AttributeError:
        vars(error)[name] = value


def _made(kind: type[Exception], args: list[Any]) -> Exception:
    """An instance, without calling an `__init__` that is not a built-in one."""
    base: Any = next(one for one in kind.__mro__ if getattr(builtins, one.__name__, None) is one)
    try:
        error: Exception = kind.__new__(kind, *args)
    except Exception as raised:
        check_own(raised, lambda: kind.__new__(kind, *args))
        error = base.__new__(kind, *args)
    try:  # its arguments need not be those that the built-in one takes
        base.__init__(error, *args)
    except Exception as raised:
        check_own(raised, lambda: base.__init__(error, *args))
    BaseException.__setattr__(error, "args", tuple(args))  # also where the type is frozen
    return error


def _comes_back(error: BaseException, record: Mapping[str, Any]) -> bool:
    again = _again(record, "")
    return type(again) is type(error) and words(again) == record["text"]


def _args(
    error: BaseException, holders: _Holders, lost: list[str]
) -> tuple[Plain, dict[str, Plain]]:
    """Returns its arguments, and those of them that are errors themselves; its message, if they are
    not plain. For a group they are its message: its members are stored apart."""
    try:
        return _taken_args(error, holders)
    except Exception as raised:
        check_own(raised, lambda: _taken_args(error, holders))
        lost.append(ARGS)
        return [words(error)], {}


def _taken_args(error: BaseException, holders: _Holders) -> tuple[Plain, dict[str, Plain]]:
    nested: dict[str, Plain] = {}
    args = [error.message] if isinstance(error, BaseExceptionGroup) else list(error.args)
    for place, arg in enumerate(args):
        if isinstance(arg, Exception):
            args[place] = None
            _add_nested(nested, str(place), arg, holders)
    return take(args), nested


def _add_nested(nested: dict[str, Plain], name: str, error: Exception, holders: _Holders) -> None:
    record = _held_record(error, holders)
    if _stands_in(record):
        raise Unstorable("it does not come back as it was")
    nested[name] = record


def _attributes(
    error: BaseException, nested: dict[str, Plain], holders: _Holders, lost: list[str]
) -> dict[str, Plain]:
    """Returns the error's attributes beside its arguments, e.g. a `retry_after`, as far as they are
    plain."""
    found: dict[str, Plain] = {}
    for name, value in {**_slots_of(error), **getattr(error, "__dict__", {})}.items():
        if name.startswith("__") and name != "__notes__":
            continue
        try:
            if isinstance(value, Exception):
                _add_nested(nested, name, value, holders)
                continue
            plain, size = _sized(value)
        except Exception as raised:
            check_own(raised, partial(_sized, value))
            lost.append(name)
            continue
        if size <= ATTRIBUTE_MAX or (isinstance(error, PerdureError) and name in _OWN):
            found[name] = plain
        else:
            lost.append(name)
    return found


def _slots_of(error: BaseException) -> dict[str, Any]:
    """Returns the contents of its classes' own slots."""
    names = [
        name
        for kind in type(error).__mro__
        if kind.__module__ != "builtins"
        for name in _names_of(vars(kind).get("__slots__", ()))
    ]
    return {name: getattr(error, name) for name in names if hasattr(error, name)}


def _names_of(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _sized(value: Any) -> tuple[Plain, int]:
    plain = take(value)
    return plain, len(codec.encode(plain))


def _members(error: BaseException) -> dict[str, Plain]:
    found: dict[str, Plain] = {}
    for name in MEMBERS if isinstance(error, _WITH_MEMBERS) else ():
        try:
            value = _member(error, name)
        except Exception as raised:
            check_own(raised, partial(_member, error, name))
            continue
        if value is not None:
            found[name] = value
    return found


def _member(error: BaseException, name: str) -> Plain:
    value = None if name in getattr(error, "__dict__", {}) else getattr(error, name, None)
    return {"path": str(value)} if isinstance(value, Path) else take(value)


def _add_validation(record: dict[str, Plain], error: Any) -> None:
    """The parts of a pydantic error, and the way of rendering them that gives its words."""
    try:
        found = _validation_of(error, record["text"])
    except Exception as raised:  # not a validation error, or its input is not plain
        check_own(raised, lambda: _validation_of(error, record["text"]))
        return
    if found is not None:
        record["validation"] = found


def _validation_of(error: Any, text: Plain) -> Plain:
    parts = [_validation_part(part) for part in error.errors(include_url=False)]
    for json, hide in ((False, False), (True, False), (False, True), (True, True)):
        made = {"title": error.title, "errors": parts, "json": json, "hide": hide}
        plain = take(made)
        if len(codec.encode(plain)) > PARTS_MAX:
            return None
        if words(_validation_error(type(error), made)) == text:
            return plain
    return None


def _validation_part(part: Mapping[str, Any]) -> dict[str, Any]:
    context = {
        name: words(value) if isinstance(value, BaseException) else value
        for name, value in part.get("ctx", {}).items()
    }
    return {
        "type": part["type"],
        "loc": list(part["loc"]),
        "input": part["input"],
        "msg": part["msg"],
        "ctx": context,
    }


def _validation_error(kind: Any, made: Mapping[str, Any]) -> Exception:
    parts = []
    for part in made["errors"]:
        detail = {"type": part["type"], "loc": tuple(part["loc"]), "input": part["input"]}
        if part["ctx"]:
            detail["ctx"] = part["ctx"]
        try:
            kind.from_exception_data("", [detail])
        except KeyError:  # not one of pydantic's own kinds
            custom = sys.modules["pydantic_core"].PydanticCustomError
            detail["type"] = custom(part["type"], part["msg"])
            detail.pop("ctx", None)
        parts.append(detail)
    shown = "json" if made["json"] else "python"
    error: Exception = kind.from_exception_data(
        made["title"], parts, input_type=shown, hide_input=made["hide"]
    )
    error.args = ()  # as those have that pydantic raises
    return error
