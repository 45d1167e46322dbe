"""Validation by the library that the user's types belong to: msgspec, or pydantic where it is used.

The only module that imports pydantic, and it does so only for a schema that mentions a type of it.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any, Protocol, get_origin
from uuid import UUID

import msgspec

from perdure.core.values import zones
from perdure.core.values.plain_values import SCALARS, Path, format_path, same
from perdure.core.values.zones import MissingZone
from perdure.errors import PerdureError, SchemaError, UnknownZone
from perdure.system import stack_room
from perdure.system.late_imports import loading
from perdure.system.locks import Lock
from perdure.system.user_errors import check_own, of_code

_BY_TEXT = {
    "builtins": ("complex",),
    "fractions": ("Fraction",),
    "ipaddress": (
        "IPv4Address",
        "IPv6Address",
        "IPv4Network",
        "IPv6Network",
        "IPv4Interface",
        "IPv6Interface",
    ),
    "pathlib": ("PurePath",),
    "zoneinfo": ("ZoneInfo",),
}
"""Standard types that `str` writes and their constructor reads, by module."""

_taking_apart = Lock()
"""msgspec takes a type apart at its first use; two threads that do so at once crash the process."""

PLAIN_BUILTINS = (bytes, dt.datetime, dt.date, dt.time, dt.timedelta, Decimal, UUID)


class ValidationSubject(Protocol):
    """The subject of a validation: an annotation, with room for what the library prepares for
    it."""

    annotation: Any
    config: Mapping[str, Any] | None
    prepared: Any


class Marks(msgspec.Struct):
    """The marks of an annotation, without its type, as a library is asked for them."""

    annotation: Any
    config: Mapping[str, Any] | None
    prepared: Any = None


class Engine:
    """Validates plain values into typed ones, and takes types of its library apart."""

    by_name = False  # whether fields go by their names; else by what the class renames them to
    piecewise = False  # whether types are mixed that the library cannot validate as a whole

    def supports(self, annotation: Any) -> bool:
        """True if the library can validate it as a whole."""
        return True

    def prepare(self, place: ValidationSubject) -> None:
        """Makes what the library validates a place with, which is made otherwise at its first use.

        Raises:
            SchemaError: the library does not know the type.
        """

    def validate(self, place: ValidationSubject, value: Any, at: Path, root: str) -> Any:
        """Returns a typed value.

        Raises:
            SchemaError: it does not fit; names each path.
        """
        raise NotImplementedError

    def dump(self, place: ValidationSubject, value: Any) -> Any:
        """Returns the value in terms of plain kinds. Raises whatever the library raises."""
        raise NotImplementedError

    def explain(self, error: Exception, at: Path, root: str) -> PerdureError:
        """Returns the SchemaError for an error of a class's own validation.

        Raises:
            UnknownZone, MemoryError, RecursionError: the error says nothing about the value.
        """
        if isinstance(error, UnknownZone | MemoryError):
            raise error
        stack_room.pass_on(error)
        return SchemaError(str(error) or type(error).__name__, target=format_path(at, root))


class MsgspecEngine(Engine):
    def supports(self, annotation: Any) -> bool:
        # It cannot validate most unions of classes.
        def take_apart() -> None:
            with _taking_apart:
                msgspec.msgpack.Decoder(annotation, dec_hook=_from_text)

        try:
            take_apart()
        except RecursionError:  # an alias within itself, say
            return False
        except Exception as error:  # a class of several variables fails an assertion of its
            check_own(error, take_apart)
            return False
        return True

    def validate(self, place: ValidationSubject, value: Any, at: Path, root: str) -> Any:
        try:
            return msgspec.convert(value, place.annotation, dec_hook=_from_text)
        except (msgspec.ValidationError, ValueError, TypeError) as error:
            raise self.explain(error, at, root) from error
        except RecursionError:  # of the caller's depth, maybe: who called tries it afresh
            raise
        except of_code() as error:  # msgspec makes its own error of no other that a class raises
            check_own(error, lambda: msgspec.convert(value, place.annotation, dec_hook=_from_text))
            raise self.explain(error, at, root) from error

    def dump(self, place: ValidationSubject, value: Any) -> Any:
        return msgspec.to_builtins(value, builtin_types=PLAIN_BUILTINS, enc_hook=_to_text)

    def explain(self, error: Exception, at: Path, root: str) -> PerdureError:
        if not isinstance(error, msgspec.ValidationError):
            return super().explain(error, at, root)
        problem, found, inside = str(error).partition(" - at `$")
        if not found:
            problem, found, inside = str(error).partition(" - at `key` in `$")
        target = format_path(at, root) + inside.rstrip("`")
        return SchemaError(problem or type(error).__name__, target=target)


def text_types() -> tuple[type[Any], ...]:
    """Returns those of them that are loaded: nobody has a value of the others. Loading costs 15
    ms."""
    loaded = ((sys.modules.get(module), names) for module, names in _BY_TEXT.items())
    return tuple(getattr(module, name) for module, names in loaded if module for name in names)


def _from_text(kind: type[Any], value: Any) -> Any:
    kind = get_origin(kind) or kind
    if issubclass(kind, text_types()) and isinstance(value, str):
        try:
            return kind(value)
        except KeyError as error:  # of these, only a ZoneInfo looks something up
            raise UnknownZone(value) from error
    if isinstance(value, kind):
        return value
    raise TypeError(f"Expected `{kind.__name__}`, got `{type(value).__name__}`")


def _to_text(value: Any) -> Any:
    if isinstance(value, text_types()):
        return str(value)
    raise NotImplementedError(f"no plain form for a {type(value).__name__}")


def _stays(given: Any, made: Any) -> bool:
    """True if the plain parts of a value stayed what they were: a strict class converts nothing."""
    if isinstance(given, dict) and isinstance(made, dict):
        return all(_stays(one, made.get(key, one)) for key, one in given.items())
    if isinstance(given, list | tuple) and isinstance(made, list | tuple):
        return len(given) == len(made) and all(map(_stays, given, made))
    if type(given) in SCALARS and type(made) in SCALARS:
        return same(given, made)
    return True


class PydanticEngine(Engine):
    by_name = True

    def __init__(self) -> None:
        with loading:
            import pydantic
            import pydantic_core

        self._pydantic = pydantic
        self._core = pydantic_core

    def prepare(self, place: ValidationSubject) -> None:
        self._adapter(place)

    def _adapter(self, place: ValidationSubject) -> Any:
        if place.prepared is None:
            place.prepared = self._made_adapter(place)
        return place.prepared

    def _made_adapter(self, place: ValidationSubject) -> Any:
        def make() -> Any:
            config: Any = place.config
            try:
                return self._pydantic.TypeAdapter(place.annotation, config=config or None)
            except self._pydantic.PydanticUserError as error:
                if error.code != "type-adapter-config-unused":
                    raise
                return self._pydantic.TypeAdapter(place.annotation)

        try:
            return make()
        except (PerdureError, RecursionError):
            raise
        except Exception as error:  # whatever pydantic raises of a type that it does not know
            check_own(error, make)
            problem = (str(error) or type(error).__name__).splitlines()[0]
            raise SchemaError(
                f"pydantic cannot validate {place.annotation!r}: {problem}",
                target=getattr(place.annotation, "__name__", str(place.annotation)),
                hint="use types that pydantic knows, or mark the field perdure.Ephemeral",
            ) from error

    def validate(self, place: ValidationSubject, value: Any, at: Path, root: str) -> Any:
        adapter = place.prepared or self._adapter(place)
        try:
            # Field names are stored, whatever aliases the class reads from others.
            return adapter.validator.validate_python(value, by_name=True, by_alias=False)
        except self._core.ValidationError as error:
            with suppress(self._core.ValidationError):
                made = adapter.validate_python(value, strict=False, by_name=True, by_alias=False)
                if _stays(value, adapter.dump_python(made, warnings=False)):
                    return made  # a strict class refused the plain form of an Enum, say
            explained = self.explain(error, at, root)
            if isinstance(explained, UnknownZone):
                with suppress(self._core.ValidationError):
                    return zones.whatever_the_offset(
                        adapter.validator.validate_python, value, by_name=True, by_alias=False
                    )
            raise explained from error
        except Exception as error:
            raise self.explain(error, at, root) from error

    def dump(self, place: ValidationSubject, value: Any) -> Any:
        return self._adapter(place).dump_python(value, mode="json", warnings=False)

    def explain(self, error: Exception, at: Path, root: str) -> PerdureError:
        if not isinstance(error, self._core.ValidationError):
            return super().explain(error, at, root)
        found = error.errors(include_url=False, include_context=False)
        for one in found:
            zone = getattr(one["input"], "tzinfo", None)
            if one["type"] == "datetime_object_invalid" and isinstance(zone, MissingZone):
                return UnknownZone(zone.key, target=format_path((*at, *one["loc"]), root))
        places = [(format_path((*at, *one["loc"]), root), one["msg"]) for one in found]
        if len(places) == 1:
            return SchemaError(places[0][1], target=places[0][0])
        listed = "".join(f"\n  {place}: {message}" for place, message in places)
        return SchemaError(f"{len(places)} problems:{listed}", target=format_path(at, root))
