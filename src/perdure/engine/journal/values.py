"""Arguments and results on their way into the journal, and out of it: typed round trips."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from types import BuiltinMethodType, FunctionType, MethodType
from typing import Any, Optional, TypeVar, get_type_hints

import msgspec

from perdure.core.format import envelope
from perdure.core.schema.schema import EphemeralMark, Schema
from perdure.core.schema.taken_values import take_at, take_plain, take_untyped
from perdure.core.schema.value_digest import AS_IT_IS, called_by
from perdure.core.types.hints import hints_of
from perdure.core.types.nodes import Node, isolate
from perdure.core.types.normal_form import completed
from perdure.core.types.read_values import read
from perdure.core.types.registry import Registry, is_known
from perdure.core.types.typed_copies import Copies
from perdure.core.types.unknown_fields import is_of_newer_data
from perdure.core.values import codec
from perdure.core.values.plain_values import SCALARS, Plain
from perdure.engine.journal.undeclared_results import take_undeclared, warn_once
from perdure.errors import PerdureError, SchemaError, Unstorable
from perdure.system.cached import cached
from perdure.system.user_errors import check_own

T = TypeVar("T")
Input = tuple[Sequence[Plain], Mapping[str, Plain]]
Stored = tuple[list[Plain], dict[str, Plain]]
Declared = tuple[Node | None, bool, bool]
_ANYTHING: Declared = (None, False, False)
_numbers = count()


def per_function(make: Callable[[Callable[..., Any]], T]) -> Callable[[Callable[..., Any]], T]:
    """Returns a function that computes `make` of a function's signature and types once: that takes
    longer than a step.

    The result is kept on the function, and goes with it: a table would keep alive what closures
    hold. For other callables the last results are kept: of methods, which are new at each look and
    equal for one object, and of objects, whose equals may be others.
    """
    kept = functools.lru_cache(256)(make)
    kept_of_objects = functools.lru_cache(256)(lambda itself: make(itself.function))
    name = f"__perdure_{next(_numbers)}__"

    def of(function: Callable[..., Any]) -> T:
        if type(function) is FunctionType:
            whose, found = function.__dict__.get(name, (None, None))
            if whose is not function:  # `functools.wraps` copies what the wrapped one has
                found = make(function)
                function.__dict__[name] = function, found
            return found  # type: ignore[no-any-return]
        inner = function.__func__ if type(function) is MethodType else function
        if type(inner) in (FunctionType, BuiltinMethodType):
            return kept(function)
        return kept_of_objects(_Itself(function))

    return of


class _Itself:
    """A callable as a key that no other one is equal to."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __hash__(self) -> int:
        return id(self.function)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other.function is self.function


class Results:
    """The storage of one function's results: by its declared return type."""

    def __init__(self, function: Callable[..., Any], returns: Any = None) -> None:
        declared = returns if returns is not None else _hints(function).get("return")
        untyped = declared is None or declared is Any or declared is inspect.Parameter.empty
        self._name = getattr(function, "__name__", "call")
        self._schema: Schema[Any] | None = None
        plain = isinstance(declared, type) and declared in AS_IT_IS
        self._as_it_is = declared if plain else None
        if not untyped and declared is not type(None):
            self._schema = Schema(declared, id=self._name)

    def take(self, value: Any) -> Plain:
        """The plain form of a result. Where no type is declared, that of an object is its data.

        Raises:
            Unstorable: with its path.
        """
        if type(value) is self._as_it_is:
            return value
        if self._schema is None:
            plain, classes = take_undeclared(value, f"{self._name}()")
            if classes:
                warn_once(self._name, classes)
            return plain
        return take_at(self._schema.root, value, (), root=f"{self._name}()")

    def take_said(self, plain: Plain) -> Plain:
        """As `take`, of plain data: what a person says that the result is."""
        if self._schema is None or type(plain) is self._as_it_is:
            return plain
        return take_plain(self._schema.root, plain, f"{self._name}()")

    def build(self, plain: Plain) -> Any:
        if self._schema is None or type(plain) is self._as_it_is:
            return plain
        return self._schema.read(plain)

    @cached
    def fills_in(self) -> bool:
        """True if building a result may give another one each time, as it lacks an id or a time."""
        with suppress(SchemaError, TypeError):  # no type of a value that could be stored
            return self._schema is not None and self._schema.registry.fills_in
        return False

    def completed(self, plain: Plain) -> Plain:
        """A recorded result, with all that its type fills in anew each time; the same where it
        lacks nothing, or does not fit."""
        if self._schema is None or type(plain) in SCALARS:
            return plain
        return self._schema.complete(plain)


class Parameters:
    """The storage of one function's arguments: by their annotations."""

    def __init__(self, function: Callable[..., Any], *, skip: int = 0) -> None:
        self._hints = _hints(function)
        try:
            parameters = list(inspect.signature(function).parameters.values())[skip:]
        except ValueError:  # builtins without a signature
            parameters = []
        by_kind = {one.kind: one for one in parameters}
        self._more = by_kind.get(inspect.Parameter.VAR_POSITIONAL)
        self._others = by_kind.get(inspect.Parameter.VAR_KEYWORD)
        self._named = {one.name: one for one in parameters if one is not self._more}
        self._positional = [one for one in parameters if one.kind <= one.POSITIONAL_OR_KEYWORD]
        self._types: dict[str, Declared] = {}

    def take(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], over: Input | None = None
    ) -> tuple[list[Plain], dict[str, Plain]]:
        """Arguments as plain data, positional and named.

        Args:
            over: the arguments of the turn before: as in a whole state that is saved over another,
                objects keep what a newer program stored in those at their places.

        Raises:
            SchemaError: one does not fit its declared type, or it is not clear which objects in it
                are which; Unstorable: it has no plain form. All name the parameter and the path.
        """
        if over is not None:
            return self._take_over(args, kwargs, over)
        return (
            [self._take(*self._at(place), arg)[0] for place, arg in enumerate(args)],
            {name: self._take(*self._of(name), arg)[0] for name, arg in kwargs.items()},
        )

    def _take_over(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], over: Input
    ) -> tuple[list[Plain], dict[str, Plain]]:
        was = {self._at(place)[0]: arg for place, arg in enumerate(over[0])} | {**over[1]}
        given = [(*self._at(place), arg) for place, arg in enumerate(args)]
        given += [(*self._of(name), arg) for name, arg in kwargs.items()]
        copies = [Copies(whole=name in was) for name, _, _ in given]
        taken: list[Plain] = []
        declared: list[Node | None] = []
        for one, known in zip(given, copies, strict=True):
            plain, node = self._take(*one, known)
            taken.append(plain)
            declared.append(node)
        here = {mark for one in copies for mark in one.taken.here}  # in another argument, too
        for index, ((name, _, _), node) in enumerate(zip(given, declared, strict=True)):
            if node is not None and name in was and not node.stable(was[name]):
                copies[index].taken.here = here
                taken[index] = copies[index].over(node, was[name], taken[index], (), name)
        return taken[: len(args)], dict(zip(kwargs, taken[len(args) :], strict=True))

    def build(
        self, args: Sequence[Plain], kwargs: Mapping[str, Plain]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the arguments again: they share nothing with the stored ones.

        Raises:
            SchemaError: a stored argument does not fit its declared type any more.
        """
        return (
            tuple(self._build(*self._at(place), arg) for place, arg in enumerate(args)),
            {name: self._build(*self._of(name), arg) for name, arg in kwargs.items()},
        )

    def completed(self, given: Stored) -> Stored:
        """Returns plain arguments with the fields that they lack and whose defaults may be others
        each time, such as ids: each call of the function then gets the same. The same where they
        lack none."""
        args, kwargs = given
        whole = (
            [self._completed(*self._at(place), arg) for place, arg in enumerate(args)],
            {name: self._completed(*self._of(name), arg) for name, arg in kwargs.items()},
        )
        parts = (*whole[0], *whole[1].values()), (*args, *kwargs.values())
        return given if all(map(operator.is_, *parts)) else whole

    def _completed(self, name: str, parameter: inspect.Parameter | None, plain: Plain) -> Plain:
        node, _, fills_in = self._type(parameter)
        if node is not None and fills_in:
            with suppress(PerdureError):  # it does not fit: that is said where it is built
                return completed(node, plain)
        return plain

    def _at(self, place: int) -> tuple[str, inspect.Parameter | None]:
        if place < len(self._positional):
            return self._positional[place].name, self._positional[place]
        name = self._more.name if self._more else "arguments"
        return f"{name}[{place - len(self._positional)}]", self._more

    def _of(self, name: str) -> tuple[str, inspect.Parameter | None]:
        return name, self._named.get(name, self._others)

    def _type(self, parameter: inspect.Parameter | None) -> Declared:
        """Returns the declared type of a parameter, if all of it is known, and if it may fill
        something in anew each time; None for anything."""
        if parameter is None or parameter.name not in self._hints:
            return _ANYTHING
        found = self._types.get(parameter.name)
        if found is None:
            hint = self._hints[parameter.name]
            found = self._types[parameter.name] = _declared(
                hint if parameter.default is not None else Optional[hint]  # noqa: UP045
            )
        return found

    def _take(
        self,
        name: str,
        parameter: inspect.Parameter | None,
        value: Any,
        copies: Copies | None = None,
    ) -> tuple[Plain, Node | None]:
        """Returns an argument as plain data, and its declared type if it is of that."""
        node, known, _ = self._type(parameter)
        if node is None:
            return take_untyped(value, name), None
        try:
            return take_at(node, value, (), root=name, copies=copies), node
        except SchemaError as error:
            if isinstance(error, Unstorable) and not known:
                raise
            if is_of_newer_data(error) or _raised_by_class(error) is not None:
                raise
            try:
                plain = take_untyped(value, name)
            except SchemaError as lost:  # it may be all that its function wants, and cannot be kept
                raise (error if isinstance(error, Unstorable) else lost) from error.__cause__
            if known:  # not Unstorable, which those may pass who give the function their own
                raise SchemaError(error.problem, target=error.target, hint=error.hint) from error
            return plain, None

    def _build(self, name: str, parameter: inspect.Parameter | None, plain: Plain) -> Any:
        node, known, _ = self._type(parameter)
        if node is None:
            return isolate(plain)
        try:
            return read(node.build, node, plain, (), name)
        except SchemaError as error:
            raised = _raised_by_class(error)
            if raised is not None:
                raise raised from None
            if known:
                raise
        return isolate(plain)  # it was not of its declared type in the first place


def _declared(hint: Any) -> Declared:
    try:
        registry = Registry(hint)
        return registry.root, is_known(hint), registry.fills_in
    except (SchemaError, TypeError):  # no type of a value that could be stored
        return _ANYTHING


def _raised_by_class(error: SchemaError) -> BaseException | None:
    """Returns the error of another kind that a value's class raised, if any: for example that a
    service it asks does not answer. It tells nothing about the value's type."""
    cause = error.__cause__
    while isinstance(cause, SchemaError):
        cause = cause.__cause__
    return None if isinstance(cause, ValueError | TypeError | msgspec.ValidationError) else cause


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object whose call is async
    )


is_async = per_function(_is_async)
"""Returns True if calling a function gives something to await."""


def refuse_generator(function: Callable[..., Any]) -> None:
    """Raises TypeError for a function that cannot be recorded as one call."""
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise TypeError(
            f"{label(function)} is a generator: its items cannot be recorded as one result; "
            "return a list"
        )


def label(function: Callable[..., Any]) -> str:
    """The name of a function, as the places of its calls have it; of a partial, of what that
    calls."""
    called = called_by(function)
    name = getattr(called, "__qualname__", None) or type(called).__qualname__
    return str(name).rsplit("<locals>.", 1)[-1]


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(inspect.unwrap(function), include_extras=True)
    except Exception as error:  # none, or some that cannot be resolved; they are code
        check_own(error, lambda: get_type_hints(inspect.unwrap(function), include_extras=True))
        return {}


class Binding:
    """The names of one function's arguments. Its signature is inspected once."""

    def __init__(self, function: Callable[..., Any], *, skip: int = 0) -> None:
        self._function = function
        self._skip = skip
        self._signature: inspect.Signature | None = None
        self._left_out: set[str] | None = None
        self._plain: list[str] = []
        """Its parameters, where nothing about them is special: those are named at once."""
        self._required = 1

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by parameter name; defaults and ephemeral ones left out.

        Raises:
            TypeError: they do not fit the function.
        """
        left_out = self._left_out
        if left_out is None:  # only now: annotations may name classes that come later
            left_out = self._left_out = self._look()
        if not kwargs and self._required <= len(args) <= len(self._plain):
            arguments = dict(zip(self._plain, args, strict=False))
        elif self._signature is None:
            return {**{str(i): arg for i, arg in enumerate(args)}, **kwargs}
        else:
            bound = self._signature.bind(*([None] * self._skip), *args, **kwargs)
            arguments = dict(list(bound.arguments.items())[self._skip :])
        for name in left_out:
            arguments.pop(name, None)
        return arguments

    def not_passed(
        self, defaults: Mapping[str, Any], arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns the defaults that a call takes, without ephemeral ones.

        Args:
            arguments: what `bind` returned for the call.
        """
        left_out = self._left_out or set()
        return {
            name: one
            for name, one in defaults.items()
            if name not in arguments and name not in left_out
        }

    def _look(self) -> set[str]:
        """Reads the signature; returns the parameters that are left out."""
        with suppress(ValueError):  # builtins without a signature
            self._signature = inspect.signature(self._function)
            parameters = list(self._signature.parameters.values())[self._skip :]
            if all(one.kind is one.POSITIONAL_OR_KEYWORD for one in parameters):
                self._plain = [one.name for one in parameters]
                self._required = sum(one.default is one.empty for one in parameters)
        return {
            name
            for name, hint in hints_of(self._function).items()
            if any(isinstance(mark, EphemeralMark) for mark in getattr(hint, "__metadata__", ()))
        }


# Of agent functions, whose first parameter is the run.
results_of = per_function(Results)
parameters_of = per_function(lambda function: Parameters(function, skip=1))
binding_of = per_function(lambda function: Binding(function, skip=1))


def fitting(plain: Plain, root: str) -> Plain:
    """A value that a message carries: the commit that takes it in must have room for it, or the
    run could never go on.

    Raises:
        Unstorable: it is too big.
    """
    size = len(codec.encode(plain))
    if size > envelope.SEALED_MAX // 2:
        raise Unstorable(
            f"{size:,} bytes are too much for a message",
            target=root,
            hint="keep it in a file or an object store, and send its name",
        )
    return plain
