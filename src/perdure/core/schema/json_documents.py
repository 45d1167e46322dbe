"""JSON Schema documents that declare a state: checked when declared, then asked about each state.

The rules are those of the `jsonschema` library, which is loaded when a state is declared so.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from typing import Any

from perdure.core.arguments.names import shown
from perdure.core.values.plain_values import Path, Plain, copy, format_path, take
from perdure.errors import SchemaError
from perdure.system.cached import cached
from perdure.system.late_imports import loading

WORDS_MAX = 300
"""Letters of a rule's problem in an error: it may show all of the value."""
_SCALARS = frozenset({type(None), bool, int, str})


class Document:
    """A JSON Schema of a whole state, which is a dict or a list of what JSON has."""

    def __init__(self, document: object) -> None:
        """Checks the document.

        Raises:
            TypeError: it is no dict. SchemaError: it is no valid JSON Schema, or refers to another
                document, or to a place that it has not. ImportError: the library is missing.
        """
        if type(document) is not dict:
            raise TypeError(
                f"a JSON Schema document must be a dict, not {shown(document)}: json.loads(…) "
                "makes one of a text"
            )
        self._library = _library()
        self._content: dict[str, Any] = take(document, root="document")
        for path, problem in _not_json(self._content, ()):
            raise SchemaError(problem, target=format_path(path, "document"))
        self._class = self._dialect()
        try:
            # Its formats, too: a pattern that is none would fail at the first value.
            self._class.check_schema(self._content, format_checker=self._class.FORMAT_CHECKER)
        except self._library.exceptions.SchemaError as error:
            raise SchemaError(
                f"it is no valid JSON Schema: {_bounded(error.message)}",
                target=format_path(tuple(error.absolute_path), "document"),
            ) from error
        self._check_type()
        self._check_references()
        try:
            self._validator.is_valid(self.type())
        except RecursionError as error:
            raise SchemaError(
                "its references lead around without end", target="document"
            ) from error

    @property
    def content(self) -> dict[str, Any]:
        """The document as it was given; a copy."""
        content: dict[str, Any] = copy(self._content)
        return content

    @property
    def type(self) -> type:
        """The type of the states: list if the document says that they are arrays, else dict."""
        return list if self._content.get("type") == "array" else dict

    def check(self, plain: Plain, root: str = "state") -> None:
        """Checks a whole state. Costs O(state).

        Raises:
            SchemaError: it breaks a rule, or has a value that JSON has not; names the path.
        """
        for path, problem in _not_json(plain, ()):
            raise SchemaError(
                problem,
                target=format_path(path, root),
                hint="a state that a JSON Schema declares has what JSON has: store it as a text "
                "or number",
            )
        try:
            if self._validator.is_valid(plain):
                return
            found = self._library.exceptions.best_match(self._validator.iter_errors(plain))
        except self._library.exceptions._WrappedReferencingError as error:
            raise SchemaError(
                f"its JSON Schema refers to what it has not: {error}", target=root
            ) from error
        rule = "/".join(map(str, ("#", *found.absolute_schema_path)))
        raise SchemaError(
            f"{_bounded(found.message)} (rule {rule})",
            target=format_path(tuple(found.absolute_path), root),
        )

    def _dialect(self) -> Any:
        """Returns the library's class for the `$schema` that the document names, else for 2020-12.

        Raises:
            SchemaError: the library does not know it.
        """
        latest, named = self._library.Draft202012Validator, self._content.get("$schema")
        if named is None:
            return latest
        known = self._library.validators.validator_for
        found = known({"$schema": named}, default=None) if type(named) is str else None
        if found is None:
            raise SchemaError(
                f"the JSON Schema library does not know the dialect {shown(named)}",
                target="document['$schema']",
                hint=f"leave it out, or name {latest.META_SCHEMA['$id']!r}",
            )
        return found

    def _check_type(self) -> None:
        said = self._content.get("type", "object")
        if not {"object", "array"}.intersection([said] if isinstance(said, str) else said):
            raise SchemaError(
                f"a state is an object or an array, and it allows {shown(said)} only",
                target="document.type",
                hint="declare an object that has it: {'type': 'object', 'properties': …}",
            )

    @cached
    def _validator(self) -> Any:
        """Refers to nothing outside of the document: no reference is ever fetched."""
        return self._class(self._content, registry=self._registry)

    @cached
    def _registry(self) -> Any:
        with loading:
            import referencing

        return referencing.Registry()

    def _check_references(self) -> None:
        with loading:
            import referencing
            import referencing.exceptions
            from referencing.jsonschema import DRAFT202012

        resource = referencing.Resource.from_contents(
            self._content, default_specification=DRAFT202012
        )
        resolver = self._registry.resolver_with_root(resource)
        left = [(resolver, resource)]
        while left:
            resolver, one = left.pop()
            content = one.contents
            for word in ("$ref", "$dynamicRef", "$recursiveRef"):
                target = content.get(word) if isinstance(content, dict) else None
                if not isinstance(target, str):
                    continue
                try:
                    resolver.lookup(target)
                except (referencing.exceptions.Unresolvable, ValueError) as error:
                    raise SchemaError(
                        f"{word} {target!r} is no place in the document",
                        target="document",
                        hint="references are never fetched: put what they refer to under $defs",
                    ) from error
            left += [(resolver.in_subresource(part), part) for part in one.subresources()]


def _library() -> Any:
    try:
        with loading:
            return importlib.import_module("jsonschema")
    except ImportError as error:
        raise ImportError(
            f"a state that a JSON Schema declares needs jsonschema ({error}): "
            "pip install 'perdure[jsonschema]'"
        ) from error


def _not_json(plain: Plain, at: Path) -> Iterator[tuple[Path, str]]:
    """Yields the places of what JSON has not, each with the problem."""
    kind = type(plain)
    if kind is dict:
        for key, one in plain.items():
            if type(key) is not str:
                yield at, f"a key of a JSON object is a text, not {shown(key)}"
            if type(one) not in _SCALARS:
                yield from _not_json(one, (*at, key))
    elif kind is list:
        for index, one in enumerate(plain):
            if type(one) not in _SCALARS:
                yield from _not_json(one, (*at, index))
    elif kind is float:
        if not math.isfinite(plain):
            yield at, f"JSON has no {plain}"
    elif kind not in _SCALARS:
        yield at, f"JSON has no {kind.__name__}"


def _bounded(words: str) -> str:
    return (
        words
        if len(words) <= WORDS_MAX
        else f"{words[: WORDS_MAX // 2]} … {words[-WORDS_MAX // 2 :]}"
    )
