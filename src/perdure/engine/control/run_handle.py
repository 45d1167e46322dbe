"""The handle of a run from outside: its status, its result, and the settlement of calls in
doubt."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Generic, TypeVar

from msgspec import UNSET
from msgspec.structs import replace

from perdure.core.arguments.checks import flag, seconds
from perdure.core.arguments.checks import function as check_function
from perdure.core.arguments.names import check_key, check_words
from perdure.core.format.records import Outcome, Pending, Record
from perdure.core.values.plain_values import Plain, take
from perdure.engine.control.explanation import Explanation
from perdure.engine.control.noting import Noting, cancellation, note_of_run, reader_of_run
from perdure.engine.control.rerun import fork_run, refuse_unfinished, retry_run
from perdure.engine.control.run_report import RunReport
from perdure.engine.control.settlement import check_open, journals, left_open
from perdure.engine.control.unbegun import end_unbegun
from perdure.engine.control.undoing_first import undoes_first
from perdure.engine.control.wait_circles import WaitingInPlace
from perdure.engine.control.waiting_for_runs import has_result, unfinished, wait_until
from perdure.engine.execution.wakeups import POLL_S, Wakeups
from perdure.engine.functions.run_lookup import find_run, refuse_moved
from perdure.engine.journal.answer_schema import check_answer
from perdure.engine.journal.any_values import take_any
from perdure.engine.journal.failures import rebuild_error
from perdure.engine.journal.journal import Journal
from perdure.engine.journal.ledger import SETTLED, EffectInfo, effects_of
from perdure.engine.journal.left_history import Again
from perdure.engine.journal.questions import OpenQuestions, Question
from perdure.engine.journal.values import results_of
from perdure.engine.journal.waits import check_signal
from perdure.errors import (
    Conflict,
    Corrupt,
    NeedsAttention,
    NotFound,
    RunFailed,
    TimedOut,
    UnsupportedFormat,
)
from perdure.missing import MISSING
from perdure.model import Cause, Commit, Message, RunInfo, RunStatus
from perdure.state.context import Context
from perdure.state.runs.run_rows import FINISHED
from perdure.state.runs.unused_signals import sent_key
from perdure.storage.appending import Refused
from perdure.storage.capabilities import Sent
from perdure.storage.log.reader import SEQ_END, LogReader
from perdure.storage.standing import ClosedError
from perdure.system import shell
from perdure.system.done_already import DoneAlready
from perdure.system.late_imports import loading

R = TypeVar("R")


class RunHandle(Generic[R]):
    """One run, seen from outside the process that executes it."""

    def __init__(
        self,
        context: Context,
        wakeups: Wakeups,
        run: str,
        build: Callable[[Plain], Any] = lambda plain: plain,
        agent: str = "",
    ) -> None:
        self._context = context
        self._wakeups = wakeups
        self._id = run
        self._agent = agent
        self._build = build

    @property
    def id(self) -> str:
        return self._id

    @property
    def info(self) -> RunInfo:
        """Returns the run as it is now.

        Raises:
            NotFound: there is no run of that id.
        """
        return find_run(self._context.backend, self._id)

    @property
    def status(self) -> RunStatus:
        """The run's status; for errors, see `info`."""
        return self.info.status

    def result(self, timeout: timedelta | float | None = None) -> R:
        """The recorded result, waiting for it up to `timeout` (seconds or a timedelta).

        Waiting runs nothing: without a timeout, and with nobody who runs the run, it lasts for
        ever. `store.run`, or a worker, is what goes on with a run.

        Raises:
            TimedOut: it is not finished yet.
            Conflict: it is asked for by the code of a run that must end before that one can.
            NeedsAttention: it stopped, and needs a person.
            RunFailed or the function's own exception: it failed or was cancelled.
            ClosedError: it goes on in another store, which its agent was moved to.
        """
        left = None if timeout is None else seconds(timeout, "timeout=")
        until = None if left is None else time.monotonic() + left
        here = WaitingInPlace(self._context, self._wakeups, self._id, alone=until is None)
        with self._wakeups.watch(self._id) as watch, here:
            while True:
                info = self.info
                if has_result(info):
                    return self._result_of(info)
                refuse_moved(self._context.backend, info)
                if until is None:
                    here.refuse()
                elif time.monotonic() >= until:
                    raise unfinished(info)
                watch.wait(POLL_S if until is None else min(until - time.monotonic(), POLL_S))

    def _result_of(self, info: RunInfo) -> R:
        """Returns what `result` does, for a row that `has_result`; raises what the run failed with,
        which may be a TimedOut, too."""
        if info.status == "done":
            return self._build(info.result)  # type: ignore[no-any-return]
        if info.status == "failed":
            raise rebuild_error(info.result, f"run {info.id}")
        if info.status == "cancelled":
            raise RunFailed(f"was cancelled: {info.problem}", target=f"run {info.id}")
        refuse_moved(self._context.backend, info)  # a person may have settled it there
        raise NeedsAttention(info.problem or "it stopped", target=f"run {info.id}")

    def typed(self, function: Callable[..., Any]) -> RunHandle[Any]:
        """The same, with results of the function's declared type."""
        check_function(function, "function, whose results they are,")
        build = results_of(function).build
        return RunHandle(self._context, self._wakeups, self._id, build)

    # -- messages ----------------------------------------------------------------------------

    def signal(self, name: str, value: Any = None, *, key: str | None = None, by: str = "") -> bool:
        """Sends the run a signal, durably; it may come before the run waits for it. It never
        disturbs the executor of the run.

        Args:
            value: plain data, or a value of a type with a schema.
            key: a signal sent again with the same key is the same signal, and is delivered once.
            by: the sender; recorded.

        Returns:
            False if one with this key was sent before.

        Raises:
            Conflict: the run is finished.
            NotFound: there is no such run.
            Unstorable: the value cannot be stored.
            ValueError: the key is empty, or the name is one of the library's own.
        """
        name, by = check_signal(name), check_words(by, "by=")
        once = os.urandom(12).hex() if key is None else sent_key(check_key(key, "a signal's key"))
        return self._send("signal", name, once, take_any(value, "value"), by).fresh

    def questions(self) -> list[Question]:
        """Returns the questions that the run asks, and that nobody has answered yet."""
        return list(self._asked().open.values())

    def _asked(self) -> OpenQuestions:
        info = self.info
        if not info.started or info.status in FINISHED:
            return OpenQuestions(info, self._reader)
        # Read before the log: an answer that the run takes out in between is in the log then.
        answers = self._context.backend.inbox(self._id, kind="answer")
        return OpenQuestions.read(info, self._reader, {(one.name, one.key) for one in answers})

    def answer(self, value: Any, *, to: Question | str | None = None, by: str = "") -> None:
        """Answers a question of the run; the author is recorded. The first answer counts.

        Args:
            to: the question, one that `questions` returned, or its `name`; default: the only one
                that the run asks now. A place alone is accepted only as long as the run can have
                asked only one question there: in its first turn, not set back or forked.

        Raises:
            Conflict: it asks nothing, or several questions, or this question was answered already,
                is over, has expired, or shows other data by now; or one that shows data is meant,
                and `to` does not say so; or it was over when the answer came, as far as is known.
            SchemaError: the answer is not of the requested type, or has a name that this does not
                declare; what only the run can tell is refused when it takes the answer.
        """
        by = check_words(by, "by=")
        asked = self._asked()
        meant = asked.meant(to, self._context.backend.now())
        plain = take_any(value, "answer")
        check_answer(meant, plain)
        with DoneAlready(Conflict) as done:
            sent = self._send("answer", meant.name, meant.key, plain, by)
            if not sent.fresh:
                raise Conflict("was answered already", target=f"run {self._id}, {meant.place}")
            done.is_now(
                "the answer is in its inbox, and whether it was in time could not be read",
                f"do not answer again; `{shell.perdure('why', self._id)}` says how the run is",
            )
            asked.check_heard(meant, sent.message)

    def _send(self, kind: Any, name: str, key: str, value: Plain, by: str) -> Sent:
        agent = self._agent = self._agent or self.info.agent
        sent = self._context.send(Message(self._id, agent, kind, name, key, value, by))
        if isinstance(sent, Refused):
            raise Conflict(f"is {self.info.status} already", target=f"run {self._id}")
        self._wakeups.tell(self._id)
        return sent

    # -- looking at it -----------------------------------------------------------------------

    def why(self) -> Explanation:
        """Returns the reason why the run is not moving, or that it is; and what to do."""
        with loading:
            from perdure.engine.control.why import (
                explain,
            )  # for people who look: not at every start

        return explain(self._context.backend, self.info, self._wakeups.leaked)

    def report(self) -> RunReport:
        """Returns everything known about the run: its timeline, its place in the code, what it
        waits for and asks."""
        with loading:
            from perdure.engine.control.reporting import report

        asked: list[Question] = []
        with suppress(Corrupt, UnsupportedFormat):  # its `why` says what cannot be read
            asked = self.questions()
        return report(self._context.backend, self.info, asked, self._wakeups.leaked)

    # -- tool calls --------------------------------------------------------------------------

    def effects(self, *, damaged_too: bool = False) -> list[EffectInfo]:
        """The run's tool calls, in order: its part of the effect ledger.

        Args:
            damaged_too: pass over commits that cannot be read: what these said of calls is missing.

        Raises:
            Corrupt: a commit from the run's begin to its end cannot be read.
        """
        if not self.info.started:
            return []
        journals = self._journals(damaged_too=flag(damaged_too, "damaged_too="))
        return self._effects(journals)

    def settle(
        self, call: str, *, done: Any = MISSING, not_done: bool = False, by: str = ""
    ) -> Commit:
        """Records the outcome of a tool call in doubt; the run continues when it is run again.

        The outcome may be changed until the run has continued with it. For a run that has ended,
        only the record of its calls is completed; likewise for calls in a history that the run left
        when it was set back: if not done there, such a call is made again.

        Args:
            call: its place, e.g. ``refund#1``; if several calls had it, the last of these that is
                in doubt.
            done: it took effect, and this is its result.
            not_done: it did not take effect: it will be called again.
            by: the author; recorded.

        Raises:
            NotFound: the run has no such call.
            Conflict: the call is not in doubt, the run has continued with its outcome, or an
                executor is running the run.
            ValueError: neither or both of `done` and `not_done`.
        """
        call, by = check_words(call, "call="), check_words(by, "by=")
        if (done is MISSING) == (not flag(not_done, "not_done=")):
            raise ValueError("say either done=<its result> or not_done=True")
        outcome = Outcome(
            t="outcome",
            run=self._id,
            place=call,
            by="person",
            who=by,
            not_done=not_done,
            value=UNSET if not_done else take(done, root="done"),
        )

        def settled(info: RunInfo) -> tuple[Record, RunInfo]:
            said = replace(outcome, key=self._check_open(call, info) or None)
            if info.status in FINISHED:  # only the ledger learns of it
                return said, info
            return said, replace(info, status="pending", problem=None)

        commit = self._record(Cause("settle", call, run=self._id, step=call), settled)
        self._wakeups.tell(self._id)
        return commit

    def _check_open(self, call: str, info: RunInfo) -> str:
        """Checks that an outcome of the call may still be recorded, as of this head. Returns its
        idempotency key if it was made in a history that the run left.

        Raises:
            NotFound, Conflict: see `settle`.
        """
        *left, journal = self._journals(damaged_too=True)
        try:
            check_open(self._id, journal, call, ended=info.status in FINISHED)
        except (Conflict, NotFound):
            key = left_open(self._id, left, journal, call)
            if key is None:
                raise
            return key
        return ""

    def cancel(
        self,
        why: str = "",
        *,
        wait: bool = False,
        timeout: timedelta | float | None = None,
    ) -> None:
        """Ends a run; its tool calls stay in the ledger. One that has not begun, or that no
        executor has, is ended here. An executor leaves its function at the next step, or at once
        while it waits: after this, unless with `wait`.

        Args:
            wait: return when the run has ended.
            timeout: the longest time to wait, seconds or a timedelta.

        Raises:
            Conflict: it is finished; or, with `wait`, it came to its end first, or is the run of
                the code that waits.
            TimedOut: it was asked to end, and has not ended yet.
        """
        why = check_words(why, "why=")
        until = wait_until(wait, timeout)
        with DoneAlready(Conflict, TimedOut) as done:
            if not self._ask_to_end(why, done) and wait:
                self._wait_for_its_end(why, until)

    def _wait_for_its_end(self, why: str, until: float | None) -> None:
        """Waits for the end of a run that was asked to; ends it here once no executor has it.

        Args:
            until: see `wait_until`.

        Raises:
            TimedOut: it has not ended by then. Conflict: see `cancel`.
        """
        here = WaitingInPlace(self._context, self._wakeups, self._id, alone=until is None)
        with self._wakeups.watch(self._id) as watch, here:
            while not self._end_if_free(why):
                refuse_moved(self._context.backend, self.info)
                if until is None:
                    here.refuse()
                elif time.monotonic() >= until:
                    raise unfinished(self.info)
                watch.wait(POLL_S if until is None else min(until - time.monotonic(), POLL_S))

    def _ask_to_end(self, why: str, done: DoneAlready | None = None) -> bool:
        """Cancels the run, or asks its executor to; returns True if it has ended.

        Args:
            done: is told when it is asked.

        Raises:
            Conflict: it is finished.
        """
        info = self.info
        if info.status in FINISHED:
            raise Conflict(f"is {info.status} already", target=f"run {self._id}")
        if not info.started:
            with suppress(ClosedError):  # its agent is on its way elsewhere: there it is heard
                if end_unbegun(self._context, self._wakeups, self._id, why):
                    return True
            info = self.info  # it began; or nobody can say how it would have begun
        # A run that was cancelled before, and set back, had a message of this kind already.
        try:
            self._send("cancel", "", os.urandom(12).hex(), why, "")
        except Conflict:
            if self.info.status != "cancelled":  # by somebody else, since it was looked at
                raise
            return True
        if done is not None:
            done.is_now(
                "it is asked to end, and more could not be done",
                f"its executor ends it; if none does, `{shell.perdure('cancel', self._id)}` once "
                "more ends it here",
            )
        return bool(info.started) and self._end_if_free(why)

    def _end_if_free(self, why: str) -> bool:
        """Ends a run that was asked to, if no executor has it; returns True if it has ended.

        Raises:
            Conflict: it came to its end before that was heard.
        """
        if undoes_first(self._context, self.info):
            with suppress(Conflict):  # it need not be resumed: whoever executes it hears of it
                self._resume(accepts=False)  # who wants it ended does not say where
            return False
        try:
            self._record(Cause("run-cancelled", why, run=self._id), cancellation(self._id, why))
        except (Conflict, ClosedError):
            status = self.info.status
            if status not in FINISHED:
                return False  # it is being executed, or is on its way elsewhere: there it is heard
            if status != "cancelled":
                raise
        self._wakeups.tell(self._id)
        return True

    def fork(
        self, step: str, *, branch: str, effects: Again = "ask", key: str | None = None
    ) -> RunHandle[R]:
        """Another run, on a new branch, that goes on where a step of this one began: with its
        history and its state of then, copying nothing. A worker, or `store.run` with its key,
        goes on with it.

        Args:
            step: a place of the current turn, e.g. ``draft#2``.
            effects: before it makes a tool call that this run made since then: ``"ask"`` a person
                (by `settle`), ``"reuse"`` its outcome, or make it again, ``"live"``.
            key: of the new run; default: this one's and the branch.

        Raises:
            NotFound: the current turn has not come to that place, nor has a history that it left:
                of such a place, that history's state comes back.
            Conflict: there is such a branch or run.
        """
        row = fork_run(self._context, self.info, step, effects, branch, key)
        self._wakeups.tell(row.id)
        return RunHandle(self._context, self._wakeups, row.id, self._build)

    def retry(self, step: str, *, effects: Again = "ask") -> None:
        """Sets this run, which has ended or needs attention, back to where a step began, and its
        branch's state with it; it goes on from there. See `fork`; both stay in the log.

        Raises:
            Conflict: it is not finished, or another run has the branch.
            NotFound: its last turn has not come to that place, nor has a history that it left: of
                such a place, that history's state comes back.
        """
        info = self.info
        refuse_unfinished(info)
        retry_run(self._context, info, step, effects)
        self._wakeups.tell(self._id)

    def resume(self) -> None:
        """Lets a run that needs attention be tried again, now that what stopped it is put right; if
        its surroundings changed, see `Guards`, they are accepted as they were found.

        Raises:
            Conflict: it does not need attention.
        """
        self._resume(accepts=True)

    def _resume(self, *, accepts: bool) -> None:
        def pending(info: RunInfo) -> tuple[Record, RunInfo]:
            if info.status != "needs_attention":
                raise Conflict(f"is {info.status}", target=f"run {self._id}")
            row = replace(info, status="pending", problem=None)
            return Pending(run=self._id, accepts=accepts), row

        self._record(Cause("run-pending", run=self._id), pending)
        self._wakeups.tell(self._id)

    def _record(self, cause: Cause, noting: Noting) -> Commit:
        return note_of_run(self._context, self._wakeups, self._id, cause, noting)

    def _reader(self) -> LogReader:
        return reader_of_run(self._context, self._id)

    def _journals(self, *, damaged_too: bool = False) -> list[Journal]:
        """Returns the journals of the run's turns. Behind the end of a run there is nothing of it,
        except for outcomes of calls that were in doubt there."""
        info, reader = self.info, self._reader()

        def until(last: int) -> list[Journal]:
            return journals([self._id], reader.commits(info.started, last, damaged_too=damaged_too))

        if info.status in FINISHED and info.ended:
            found = until(info.ended)
            if all(effect.state in SETTLED for effect in self._effects(found)):
                return found
        return until(SEQ_END)

    def _effects(self, found: list[Journal]) -> list[EffectInfo]:
        return [effect for journal in found for effect in effects_of(self._id, journal)]
