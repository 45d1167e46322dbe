"""Public names that import their module on first use.

A program loads what it uses: one that looks at a state needs no engine, one without coroutines no
asyncio.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any

from perdure.system.late_imports import loading


class LazyNames:
    """The names of one module, by the modules where they live, separated by spaces."""

    def __init__(self, rooms: Mapping[str, str]) -> None:
        self._home = {name: room for room, names in rooms.items() for name in names.split()}

    def find(self, module: str, name: str) -> Any:
        """Returns a name's value, for a module's `__getattr__`.

        Raises:
            StoreUnavailable: its module cannot be loaded now.
        """
        if name not in self._home:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        with loading:
            home = importlib.import_module(self._home[name])
        found = getattr(home, name)
        # It may be a module's name, too, as `play` is: the import must not hide it.
        setattr(sys.modules[module], name, found)
        return found
