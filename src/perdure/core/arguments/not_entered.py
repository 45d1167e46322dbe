"""Context managers that refuse to be used before they are entered; the message says the right
line."""

from __future__ import annotations

from typing import Any, ClassVar


class ToEnter:
    """A base of context managers that people mistake for what they give.

    Attributes:
        _entered: how it is entered. With ``__slots__`` in the class, nothing can be set on it.
    """

    __slots__ = ()

    _entered: ClassVar[str]

    def __getattr__(self, name: str) -> Any:
        said = f"{type(self).__name__!r} object has no attribute {name!r}"
        if name.startswith("__"):  # Python's own, which looks for what there may be
            raise AttributeError(said)
        raise AttributeError(f"{said}: it has to be entered, as in `{self._entered}`")
