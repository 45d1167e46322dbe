"""The live typed object of a working copy: built when asked for, kept in step, and dropped."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from perdure.core.live.drift import compare
from perdure.core.live.ephemeral import carry_over
from perdure.core.schema.schema import Schema, TypedPlan
from perdure.core.types.objects import UNKNOWN_KEYS
from perdure.core.values.ops import Op, is_torn
from perdure.core.values.plain_values import Plain
from perdure.errors import SchemaError
from perdure.missing import MISSING

T = TypeVar("T")


class Live(Generic[T]):
    """One live object, which users hold as `agent.state`.

    Attributes:
        value: the object, or MISSING where it has to be built.
        is_new: True if its plain state may be in another form than its types store it.
        shows_others: True if its classes show other values than are stored: that it differs is no
            sign of a change.
    """

    def __init__(self, schema: Schema[T], agent: str) -> None:
        self._schema = schema
        self._agent = agent
        self.value: Any = MISSING
        self.is_new = self.shows_others = False
        self._left: Any = MISSING
        """The one before it, whose Ephemeral fields the next one takes over."""

    @property
    def keeps_fields(self) -> bool:
        """True if there may be Ephemeral fields in it."""
        return self._schema.keeps_live

    def of(self, plain: Plain, seq: int, version: tuple[int, int]) -> T:
        """Returns the object of the plain state of a commit, stored under that version of the
        schema; 0: of a commit that is to come.

        Raises:
            SchemaError: it does not fit.
        """
        if self.value is MISSING:
            schema = self._schema
            built = (
                schema.build_stored(plain, self._agent, seq, version)
                if seq
                else schema.build(plain)
            )
            carry_over(self._schema.root, self._left, built)
            self.value, self._left, self.is_new = built, MISSING, True
        return self.value  # type: ignore[no-any-return]

    def normal(self, plain: Plain, version: tuple[int, int]) -> Plain:
        """Returns the plain state of which the object was built, in the form in which its types
        store it; `plain` itself if that was looked at before.

        Raises:
            SchemaError: see `Schema.normal`.
        """
        if self.is_new:
            plain, self.is_new = self._schema.normal(plain, version), False
        return plain

    def drop(self) -> None:
        """Drops the object, which no longer fits its plain state: the next look builds another,
        with its Ephemeral fields."""
        if self.value is not MISSING:
            self._left = self.value
        self.value = MISSING

    def rejoin(self, value: T) -> None:
        """Puts the earlier object back, which is in step again."""
        if self.value is not MISSING:
            carry_over(self._schema.root, self.value, value)
        self.value, self._left = value, MISSING

    def forget(self) -> None:
        """Drops the object, its Ephemeral fields included."""
        self.value = self._left = MISSING

    def drop_drift(self, plain: Plain) -> None:
        """Drops it if it was changed outside `edit`. Costs O(state)."""
        if self.value is MISSING or plain is MISSING:
            return
        if next(compare(self._schema.root, self.value, plain, deep=False), None) is not None:
            self.drop()

    def advance(
        self,
        plain: Plain,
        delta: list[Op],
        inverses: list[Op],
        version: tuple[int, int],
        *,
        by_place: bool,
    ) -> bool:
        """Brings it in step with ops that the log has. Drops it where they do not fit, or where
        fields seem to be renamed in what they bring: the next look says so.

        Args:
            plain: the plain state with the ops applied.
            delta, inverses: copies of the ops; they may be changed.
            version: the one that they were written under.
            by_place: see `Schema.plan`.

        Returns:
            True if `plain` is unchanged. Otherwise validation here changed it from what was
            written, or was interrupted in that, and the log has the right one.
        """
        plan: TypedPlan | None = None
        met = UNKNOWN_KEYS.met
        try:
            plan = self._schema.plan(self.value, plain, delta, inverses, by_place=by_place)
            if UNKNOWN_KEYS.met is not met:
                self._schema.refuse_renamed(plain, self._agent, 0, version)
        except SchemaError:
            self.drop()
            return not is_torn(inverses) and (plan is None or not plan.normalises)
        if plan.normalises:
            self.drop()
            return False
        self.value = plan.apply()
        return True
