"""What does nothing before it is entered: who asks it for more is told the line that is right."""

from __future__ import annotations

from typing import Any, ClassVar


class ToEnter:
    """A base of context managers that people take for what they give.

    Attributes:
        _entered: how it is entered. With ``__slots__`` in the class, nothing can be set on it.
    """

    __slots__ = ()

    _entered: ClassVar[str]

    def __getattr__(self, name: str) -> Any:
        said = f"{type(self).__name__!r} object has no attribute {name!r}"
        if name.startswith("__"):  # Python's own, which looks for what there may be
            raise AttributeError(said)
        raise AttributeError(f"{said}: it is to be entered, as in `{self._entered}`")
