"""One call of a recorded function, as its run knows it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, TypeVar

from msgspec import Struct

from perdure.core.format.record_parts import KeptForUndo
from perdure.core.format.records import Outcome, Placed
from perdure.core.schema.digest_keys import NO_KEYS, DigestKeys
from perdure.engine.journal.call_identity import Captured, Unsaid
from perdure.engine.journal.entry import Entry
from perdure.engine.journal.left_out import LeftOut
from perdure.engine.journal.previews import preview
from perdure.engine.journal.retries import NO_LIMITS, Limits
from perdure.engine.journal.values import Results
from perdure.storage.appending import Riders

R = TypeVar("R", bound=Placed)

CrashPolicy = Literal["retry", "probe", "ask", "fail"]
"""The treatment of a tool call in doubt: call again with the same key; ask the outside world; ask a
person; raise InDoubt in the function."""


StepDurability = Literal["sync", "group"]


class Call(Struct):
    """One call of a recorded function. `place` and `key` are known once the run has reached it."""

    run: str
    name: str
    kind: Literal["step", "tool"]
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    digests: Mapping[str, str]
    arguments: Mapping[str, Any]
    results: Results
    policy: CrashPolicy = "ask"
    probe: Callable[..., Any] | None = None
    limits: Limits = NO_LIMITS
    place: str = ""
    key: str = ""
    instead: str = ""
    """The key of the call that was made before, and in whose place this one is made again."""
    unsaid: Unsaid | None = None
    """That there are objects in its arguments which say nothing of themselves."""
    captured: Captured | None = None
    """The distinction of its function from another one of its name."""
    of: str = ""
    """The module of its function."""
    point: str = ""
    """The name for the state before it as a checkpoint; empty: none."""
    keys: DigestKeys = NO_KEYS
    durability: StepDurability | None = None
    """Of a step: whether its records wait for the disk; None: as the store's do."""
    left_out: LeftOut | None = None
    """Its arguments as the log has them, where the author leaves some out."""
    undo: KeptForUndo | None = None
    """The tool, and the arguments that are kept for its compensation."""
    compensates: str = ""
    """The place of the call that it undoes. It must come to a good end."""
    undoes: Collection[str] | None = None
    """The keys of that call; None: they are not known."""
    asks_first: str = ""
    """The doubt that a person decides on before it is made, in words; empty: there is none."""

    @property
    def target(self) -> str:
        return f"run {self.run}, call {self.place}"

    def preview(self) -> str:
        """Returns its arguments as a person reads them."""
        return preview(self.arguments) if self.left_out is None else self.left_out.shown

    def as_recorded(self, recorded: Mapping[str, str]) -> Mapping[str, str]:
        """Returns the digests of its arguments in the form of recorded ones: `record_args=` may be
        new, or gone, and so may the store's key."""
        plain = self.digests if self.left_out is None else self.left_out.digests
        return self.keys.as_recorded(plain, recorded)

    def riders(self, record: Placed) -> Riders:
        """Returns what is committed with a record of a step."""
        return Riders((record,), sync=self.durability == "sync", lazy=self.durability == "group")

    def outcome(self, **more: Any) -> Outcome:
        """Returns an outcome of a tool call; its intent has the call's description."""
        return Outcome(t="outcome", run=self.run, place=self.place, **more)

    def step(self, **more: Any) -> Outcome:
        args, said = self.digests, self.preview()
        return Outcome(t="step", run=self.run, place=self.place, args=args, preview=said, **more)

    def first(self, shape: type[R], **more: Any) -> R:
        """Returns a record that may be the first at its place, and so describes the call."""
        return shape(
            run=self.run,
            place=self.place,
            args=self.digests,
            preview=self.preview(),
            **more,
        )


def is_settled_as(call: Call, entry: Entry) -> bool:
    """Returns True if a call is exactly the one recorded there, with an outcome that the function
    saw, and nothing of that must be recorded first."""
    outcome = entry.outcome
    return (
        outcome is not None
        and entry.kind == call.kind
        and entry.call.args == call.digests
        and entry.cancelled_after_s is None
        and not outcome.not_done
        and call.unsaid is None
        and call.captured is None
        and (outcome.by != "person" or entry.completed_at > 0)
        and (not call.results.fills_in or call.results.completed(outcome.value) is outcome.value)
    )
