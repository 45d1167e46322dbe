"""The position of a run: where in its function the calling code is, and what is recorded there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from sys import exception
from typing import TypeVar

from perdure.core.format.records import Valued
from perdure.core.values.plain_values import Plain
from perdure.engine.execution.current_run import Inside, current
from perdure.engine.execution.driven_run import DrivenRun
from perdure.engine.journal.call import Call, is_settled_as
from perdure.engine.journal.call_identity import differing
from perdure.engine.journal.effects import Arrive, Arrived
from perdure.engine.journal.entry import Entry
from perdure.engine.journal.journal import OthersFirstError
from perdure.engine.journal.release_order import Waiter
from perdure.engine.journal.scopes import Scope
from perdure.errors import Drifted, PerdureError
from perdure.storage.appending import Riders
from perdure.system.locks import Span

T = TypeVar("T")


class RunPosition(DrivenRun[T]):
    """See the module."""

    edit_span: Span | None = None
    """Of the block of an edit that is open, where it is known."""

    def inside(self) -> Inside:
        """Returns the part of this run that the calling code is in."""
        frame = current()
        return frame.inside if frame is not None and frame.run is self else "function"

    def scope(self) -> Scope:
        """Returns the task of this run that the calling code is."""
        if (frame := current()) is None or frame.run is not self or frame.scope is None:
            return self.root
        return frame.scope

    def check_place(self, name: str, *, edit_too: bool = False) -> Scope:
        """Returns the task in which something can be recorded here.

        Raises:
            PerdureError: inside a step or tool, whose body is not replayed, or inside an
                open edit.
        """
        if (error := exception()) is not None:
            self.leaving.behind(error)
        self.check()
        frame = current()
        if frame is None or frame.run is not self:
            return self.root
        if (where := frame.inside) == "edit":
            self.check_lost_edit()
        if where != "function" and not (edit_too and where == "edit"):
            within = "an open edit" if where == "edit" else f"a {where}"
            problem = f"{name.partition(':')[0]} cannot be recorded inside {within}"
            hint = "do it in the agent function, before or after it"
            raise PerdureError(problem, target=f"run {self.id}", hint=hint)
        return frame.scope or self.root

    def find(self, effect: Arrive, scope: Scope, *, patient: bool = False) -> Entry | None:
        """Returns the entry that a call belongs to; it is taken.

        Args:
            patient: others of this scope may have to reach what is recorded before.

        Raises:
            OthersFirstError: they must.
            RunInterrupted: the function differs from its record.
        """
        self.check_place(effect.name)
        if not self.journal.replaying:
            return None
        with self._lock, self.stopping:
            name = scope.named(effect.name)
            entry = self.journal.find(name, effect.args, effect.form)
            if patient:
                self._let_others(entry, effect, scope)
            if entry is None:
                self.journal.check_new(name, scope.path, effect.kind)
                return None
            self.journal.check_call(entry, effect.kind, effect.args, effect.preview, effect.form)
            self._take(entry)
            return entry

    def next_recorded(self, call: Call) -> Entry | None:
        """Returns the next recorded entry in the most frequent case of a replay: the function's own
        thread makes exactly the call whose outcome is the log's next. It is taken and released.
        None if an `Arrive` must find out (also while the function may be on its way out)."""
        if (entry := self.turns.next_entry()) is None:
            return None
        frame = current()
        if entry.scope or self._interrupted is not None or exception() is not None:
            return None
        if frame is None or frame.run is not self or frame.inside != "function":
            return None
        if frame.scope not in (None, self.root) or threading.get_ident() != self.root.home:
            return None
        if not is_settled_as(call, entry):
            return None
        with self._lock:
            if self.journal.find(self.root.named(call.name)) is not entry:
                return None
            self.check_process()
            self._take(entry)
            if self.seeing.behind or self.seeing.ahead:
                self.seeing.show(entry.seq - 1)
            woken = self.turns.pass_on(entry)
        for waiter in woken:
            waiter.wake()
        return entry

    def recorded_in(self, scope: Scope, call: Call) -> Entry | None:
        """Returns an entry as `next_recorded` does, for any task of a run, whose turn may be still
        to come: it is taken, and the caller must release it."""
        frame = current()
        if frame is None or frame.inside != "function" or exception() is not None:
            return None
        with self._lock:
            entry = self.journal.find(scope.named(call.name), call.digests)
            if entry is None or self._interrupted is not None or not is_settled_as(call, entry):
                return None
            self.check_process()
            self._take(entry)
        return entry

    def watch_others(self, scope: Scope, wake: Callable[[], None]) -> Waiter | None:
        """Wakes a waiter, after `OthersFirstError`, when the scope has reached all its records.
        None if it has."""
        with self._lock:
            if self.journal.left.first_in(scope.path) is None:
                return None
            return self.turns.watch(scope.path, wake)

    def _let_others(self, entry: Entry | None, effect: Arrive, scope: Scope) -> None:
        if entry is not None:
            args = entry.call.args
            other = args != effect.args and bool(differing(args, effect.args, effect.form))
        else:
            other = self.journal.left.first_in(scope.path) is not None
        if other:
            raise OthersFirstError

    def find_edit(self, name: str, scope: Scope) -> Entry | None:
        """The entry of an edit that the function has come to; it is taken."""
        return self.find(Arrive(name, "edit", {}, str), scope)

    def begins_edit(self, name: str) -> None:
        """Begins an edit that is not recorded; it is its turn."""
        if self.seeing.has_looked:
            self._refuse_changes_outside()

    def arrived(self, effect: Arrive, scope: Scope, entry: Entry | None) -> Arrived:
        """Handles the turn of a call: a recorded one is released, another begins."""
        if entry is not None and entry.outcome is not None:
            if entry.hands and self.seeing.is_home:  # else it is made again: no event before that
                self.seeing.show(entry.shows_in_turn)  # of the same commit, an edit may be to come
            self.turns.release(entry)
            if not entry.outcome.not_done:
                return Arrived(entry.place, entry, "")  # it is not made, and needs no key
        self.check_stop()
        if self.seeing.behind:
            self.seeing.catch_up()
        if self.seeing.has_looked and (effect.outside or effect.kind == "wait"):
            self._refuse_changes_outside()  # not at each step: some are shorter than that look
        if entry is not None and not entry.cut:
            key = str(entry.call.key or self.journal.key(entry.place, effect.args))
            return Arrived(entry.place, entry, key)  # the key that the world has seen
        named = scope.named(effect.name)
        place = entry.place if entry is not None else self.journal.new_place(named)
        key = self.journal.key(place, effect.args) if effect.keyed else ""
        if self.before is None or not effect.outside:
            return Arrived(place, None, key)
        name = named[len(scope.path) :]
        with self.asking, self._lock, self.stopping:
            known = (name, scope.path, effect.args, entry, effect.form, effect.undoes)
            made = self.before.made(*known)
        return Arrived(place, None, key, made, self.before.effects)

    def new_place(self, name: str, scope: Scope) -> str:
        """Returns the place of a call that is not recorded."""
        return self.journal.new_place(scope.named(name))

    def value(self, kind: str, make: Callable[[], Plain]) -> Plain:
        """Returns a value that varies; it is recorded with the next commit."""
        if self.inside() in ("step", "tool"):
            self.check()
            return make()  # part of what the call's outcome records
        name = f"run.{kind}"
        scope = self.check_place(name, edit_too=True)
        with self._lock, self.stopping:
            entry = self.journal.find(scope.named(name))
            if entry is not None:
                self._take(entry)
                return entry.call.value
            self.journal.check_new(scope.named(name), scope.path)
            place = self.journal.new_place(scope.named(name))
            within = self._edit_place() if self.inside() == "edit" else ""
            record = Valued(t="value", run=self.id, place=place, value=make(), within=within)
            self.writer.later(Riders([record]))
            return record.value

    def alone(self) -> AbstractContextManager[None]:
        """Keeps edits of other threads waiting, and waits for one that is open.

        Raises:
            RunInterrupted: see `Edits.acquire`.
        """
        raise NotImplementedError

    def _edit_place(self) -> str:
        """Returns the place of the edit that was opened last."""
        raise NotImplementedError

    def patched(self, name: str) -> bool:
        """See `Run.patched`."""
        name = f"patch:{name}"
        scope = self.check_place(name)
        with self._lock:
            new, record = self.journal.patched(scope.named(name), scope.path)
            if record is not None:
                self.writer.later(Riders([record]))
            return new

    # -- its end -----------------------------------------------------------------------------

    def check_lost_edit(self) -> None:
        """Checks that what looks like an open edit is one.

        Raises:
            RunInterrupted: an exception ended its block before we heard of the end. It was caught,
                and would not occur again on replay.
        """
        if self.edit_span is not None and self.edit_span.is_over:
            raise self.interrupt(
                PerdureError(
                    "the end of an edit was interrupted, and that was caught",
                    target=f"run {self.id}",
                    hint="let it through; run it again to go on",
                )
            )

    def check_finished(self, error: Exception | None = None) -> None:
        """The function returned, or raised: was everything recorded come to?"""
        self.check_lost_edit()
        with self.stopping:
            self.journal.check_finished(error)
        if self.seeing.has_looked and error is None:
            self._refuse_changes_outside(whole=True)

    def _refuse_changes_outside(self, *, whole: bool = False) -> None:
        """Refuses to go on with a state that is in memory only: the function would see it, and
        nobody else, nor itself when it is run again elsewhere.

        Raises:
            Drifted: names the first path.
        """
        if not whole:  # else the function has ended
            # Other threads may have an edit open, or land one, while this looks.
            here = threading.get_ident()
            if self.going.has_crews or here not in (self.root.home, self.loop_thread):
                return
        with self._lock:
            found = self.working.changed_outside(whole=whole)
        if found is not None:
            block = "async with" if self.tasks is not None else "with"
            raise Drifted(
                f"it was changed outside an edit: {found.reason}",
                target=f"run {self.id}, {found.path}",
                hint=f'`{block} run.edit("why") as draft: …` changes the draft, and so the state; '
                "run.state only shows it",
            )
