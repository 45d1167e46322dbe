"""Guards of runs: what of a program's surroundings must stay the same, and what is done if not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import force_setattr

from perdure.core.arguments.checks import mapping, one_of
from perdure.core.arguments.exact_types import is_a
from perdure.core.arguments.names import check_words, shown, words_of
from perdure.core.arguments.unrun_code import plain_function
from perdure.core.values.plain_values import take

OnChange = Literal["warn", "stop", "ignore"]
ON_CHANGE: tuple[OnChange, ...] = ("warn", "stop", "ignore")

NAMES_MAX = 1000
"""The most names that guards may have of a kind: each of them is in the log of each run."""


class Guards(Struct, frozen=True, kw_only=True):
    """Says by what a run is compared when it resumes, with its last execution and with the
    checkpoints that were made of it since. Given to `perdure.open` for all runs that execute there,
    or to `perdure.agent` for those of one function, to which the store's names are added.

    Attributes:
        config: the configuration: a mapping of names to plain values, or a function that returns
            it, called on any thread, each time that a run begins or resumes here. Digests are
            recorded. If it raises, the run needs attention.
        dependencies: names of distributions, as `pip list` has them, whose versions are recorded.
        environment: names of environment variables; digests of their values are recorded.
        on_change: ``"warn"``: the log of the program says so, once for each change, and the run
            goes on; ``"stop"``: it needs attention, until a person resumes it; ``"ignore"``: it
            goes on. None: as the store's guards say, or else ``"warn"``.

    Raises:
        TypeError, ValueError, Unstorable: an attribute is invalid; raised when the guards are made.
    """

    config: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None
    dependencies: Collection[str] = ()
    environment: Collection[str] = ()
    on_change: OnChange | None = None

    def __post_init__(self) -> None:
        if callable(self.config):
            plain_function(self.config, "Guards: config")
        elif self.config is not None:
            said = "Guards: config must be a mapping of names to values, or a function"
            force_setattr(self, "config", take(mapping(self.config, said), root="config"))
        for name in ("dependencies", "environment"):
            force_setattr(self, name, _names(getattr(self, name), f"Guards: {name}"))
        if self.on_change is not None:
            given = one_of(self.on_change, "Guards: on_change", ON_CHANGE)
            force_setattr(self, "on_change", given)


def check_guards(given: object) -> Guards | None:
    """Returns what is given with `guards=`. Raises TypeError if it is no `Guards`."""
    if given is None:
        return None
    if not is_a(given, Guards):
        raise TypeError(f"guards= must be a perdure.Guards, not {shown(given)}")
    return given


def _names(given: Any, of: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(check_words(word, of) for word in words_of(given, of)))
    for name in names:
        if not name or "\0" in name or "=" in name:
            raise ValueError(f"{of}: {shown(name)} is no name")
    if len(names) > NAMES_MAX:
        raise ValueError(f"{of}: {len(names)} names; {NAMES_MAX} at most")
    return names
