"""LangGraph's serializer as a reader of foreign data: it runs nothing that only the data names.

Values that LangGraph would silently return as raw data, None or a dict (of unregistered types, or
that cannot be rebuilt) are returned as an `Unread`, which says why.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ormsgpack
from langgraph.checkpoint.serde import jsonplus
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_TYPES
from langgraph.checkpoint.serde.event_hooks import register_serde_event_listener

KEPT_BYTES_MAX = 64 << 20
_OPTION = ormsgpack.OPT_NON_STR_KEYS
_NAMELESS = (jsonplus.EXT_NUMPY_ARRAY, jsonplus.EXT_DELTA_SNAPSHOT)
_LOGGER = "langgraph.checkpoint.serde.jsonplus"


class Unread:
    """Stands for a value that cannot be read. `type`: its name, if it only has to be registered
    (``app.Invoice``)."""

    def __init__(self, problem: str, type: str = "") -> None:
        self.problem = problem
        self.type = type


def unregistered(module: str, name: str) -> Unread:
    return Unread(f"a {module}.{name} is not read: its type is not registered", f"{module}.{name}")


class Reader(jsonplus.JsonPlusSerializer):
    """Reads values, and gives the same object for the same bytes: thousands of checkpoints hold the
    same messages, and who gets them compares them by identity. Nobody may change them.

    Args:
        types: the user's own, by the name under which they were written (``module.Name``).
    """

    def __init__(self, types: Mapping[str, type]) -> None:
        self._types = {tuple(name.rpartition(".")[::2]): cls for name, cls in types.items()}
        known = {(cls.__module__, cls.__name__): cls for cls in types.values()}
        allowed = list(known)
        self._hook = jsonplus._create_msgpack_ext_hook(set(allowed) or None)
        super().__init__(
            allowed_msgpack_modules=allowed,
            allowed_json_modules=[(*module.split("."), name) for module, name in allowed],
            __unpack_ext_hook__=self._unpack,
        )
        self._known = self._types | known
        self._kept: dict[tuple[int, bytes], Any] = {}
        self._kept_bytes = 0
        self._blocked: list[tuple[str, str]] = []
        self.unread = False
        """True if an `Unread` was given out since this was last set to False."""

    def forget(self) -> None:
        """Forgets the objects that were returned: none is returned again."""
        self._kept.clear()
        self._kept_bytes = 0

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Loads a value as the base class does; a value that cannot be read at all becomes an
        `Unread`."""
        kind = data[0]
        if kind == "pickle":
            return self._lost("it was pickled: reading it would run code that the data names")
        if "+" in str(kind):
            return self._lost(f"it is encrypted ({kind})")
        try:
            value = super().loads_typed(data)
        except MemoryError:  # which says nothing about it
            raise
        except Exception as error:
            return self._lost(
                f"LangGraph's serializer cannot read it: {str(error) or type(error).__name__}"
            )
        try:
            return self._revived(value) if kind == "json" else value
        except RecursionError:
            return self._lost("it is nested too deep")

    def _lost(self, problem: str) -> Unread:
        self.unread = True
        return Unread(problem)

    # -- msgpack ---------------------------------------------------------------------------

    def _unpack(self, code: int, data: bytes) -> Any:
        known = self._kept.get((code, data), self)
        if known is self:
            known = self._build(code, data)
            if self._kept_bytes > KEPT_BYTES_MAX:
                self.forget()
            self._kept[code, data] = known
            self._kept_bytes += len(data)
        if isinstance(known, Unread):
            self.unread = True
        return known

    def _build(self, code: int, data: bytes) -> Any:
        """Builds a value as LangGraph does, but requires that it becomes what it says it is."""
        if code in _NAMELESS:
            made = self._quietly(code, data)
            return Unread("an array is not read: numpy is not installed") if made is None else made
        try:
            module, name, *_ = ormsgpack.unpackb(data, ext_hook=ormsgpack.Ext, option=_OPTION)
            data = self._renamed(data)
        except MemoryError:
            raise
        except Exception as error:
            return Unread(f"LangGraph's serializer cannot read it: {error}")
        key = str(module), str(name)
        if key not in self._known and key not in SAFE_MSGPACK_TYPES:
            return unregistered(*key)
        made = self._quietly(code, data)
        cls = self._known.get(key) or getattr(sys.modules.get(key[0]), key[1], None)
        if cls is None:
            return Unread(f"a {module}.{name} is not read: it is not there (is it installed?)")
        if isinstance(cls, type) and not isinstance(made, Unread | cls):
            return Unread(f"a {module}.{name} cannot be rebuilt from its stored data")
        return made

    def _quietly(self, code: int, data: bytes) -> Any:
        self._blocked.clear()
        made = self._hook(code, data)
        return unregistered(*self._blocked[0]) if self._blocked else made

    def _renamed(self, data: bytes) -> bytes:
        """Returns the data with the current names of the user's classes: those of a script were
        written as ``__main__.…``, which is another module today."""
        if all((cls.__module__, cls.__name__) == key for key, cls in self._types.items()):
            return data
        parts = ormsgpack.unpackb(data, ext_hook=self._renamed_ext, option=_OPTION)
        cls = self._types.get((parts[0], parts[1]))
        if cls is not None:
            parts = [cls.__module__, cls.__name__, *parts[2:]]
        return ormsgpack.packb(parts, option=_OPTION)

    def _renamed_ext(self, code: int, data: bytes) -> Any:
        return ormsgpack.Ext(code, data if code in _NAMELESS else self._renamed(data))

    # -- JSON, of years ago ----------------------------------------------------------------

    def _revived(self, value: Any) -> Any:
        """Returns the value with an `Unread` in place of each envelope that was left unread."""
        if type(value) is list:
            return [self._revived(item) for item in value]
        if type(value) is not dict:
            return value
        if value.get("lc") in (1, 2) and isinstance(name := value.get("id"), list):
            self.unread = True
            return unregistered(".".join(map(str, name[:-1])), str(name[-1]))
        return {key: self._revived(item) for key, item in value.items()}

    # -- LangGraph's words -----------------------------------------------------------------

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Context manager that collects the types that LangGraph's serializer blocks, and hides its
        log lines about them: an `Unread` says it better."""
        me = threading.get_ident()

        def listen(event: Any) -> None:
            if "blocked" in event["kind"] and threading.get_ident() == me:
                self._blocked.append((event["module"], event["name"]))

        def others(record: logging.LogRecord) -> bool:
            return record.thread != me

        stop = register_serde_event_listener(listen)
        log = logging.getLogger(_LOGGER)
        log.addFilter(others)
        try:
            yield
        finally:
            log.removeFilter(others)
            stop()


def found_unread(
    value: Any, path: tuple[Any, ...] = ()
) -> Iterator[tuple[tuple[Any, ...], Unread]]:
    """Yields each `Unread` in containers that a `Reader` returned, with its path."""
    if isinstance(value, Unread):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from found_unread(item, (*path, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from found_unread(item, (*path, index))
