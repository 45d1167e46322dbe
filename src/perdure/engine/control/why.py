"""The reason why a run is not moving, if it is not, and what to do about it (I8)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from perdure.engine.control.explanation import Explanation, Situation
from perdure.engine.control.time_left import time_left
from perdure.engine.control.times_in_words import clock, length, moment
from perdure.engine.control.wait_circles import IN_CIRCLE, ahead_of, find_circle
from perdure.engine.control.ways_out import WayOut, by, of_child
from perdure.engine.execution.wakeups import Leaked
from perdure.engine.functions.other_versions import in_words
from perdure.engine.functions.run_lookup import find_moved
from perdure.engine.journal.run_log import reader_of, what_is_recorded
from perdure.errors import Corrupt, UnsupportedFormat
from perdure.model import FINISHED, UNTIL, Message, RunInfo, from_micros
from perdure.state.runs.family_messages import CHILD, begin_of
from perdure.state.runs.unused_signals import MOVE
from perdure.storage.answers import ExecutorRow, Served
from perdure.storage.appending import Ref
from perdure.storage.capabilities import Backend
from perdure.storage.log.reader import LogReader
from perdure.visible import visible

LATE_S = 5.0
"""A worker that is there picks up what is to be done in far less."""

CALLS_SHOWN = 3


def explain(backend: Backend, info: RunInfo, leaked: Leaked) -> Explanation:
    """See the module. Reads the run's current turn, and changes nothing."""
    return _Look(backend, info, leaked).explanation()


class _Look:
    """One look at a run and its surroundings."""

    def __init__(self, backend: Backend, info: RunInfo, leaked: Leaked) -> None:
        self._backend = backend
        self._run = info
        self._now = from_micros(backend.now())
        self._inbox = backend.inbox(info.id)
        reader = reader_of(backend, info)
        self._reader = reader if reader is not None else self._agent_as_it_is()
        self._ref: Ref | None = None
        if self._reader is not None:
            self._ref = backend.ref(self._reader.no, info.branch)
            if self._ref is not None and leaked(info.agent, self._reader.no, self._ref):
                self._ref = replace(self._ref, held=None)  # as soon as the store takes that
        self._recorded, self._unread = what_is_recorded(reader, info)
        self._executors = backend.executors()
        held = self._holder is not None
        self._time = time_left(reader, info, self._inbox, backend.now(), executed=held)
        self._needs_caller = self._were_arguments_left_out(reader)

    def _agent_as_it_is(self) -> LogReader | None:
        agent = self._backend.agent(self._run.agent)
        return LogReader(self._backend, agent) if agent is not None and not agent.deleted else None

    def explanation(self) -> Explanation:
        run = self._run
        match run.status:
            case _ if (elsewhere := find_moved(self._backend, run)) is not None:
                why = f"{elsewhere.target} {elsewhere.problem}, and the run with it"
                made = self._made("stopped", why, None, [WayOut(elsewhere.hint)])
            case _ if self._unread is not None and not self._holder:
                made = self._unreadable(self._unread)
            case "running":
                made = self._executing() if self._holder else self._abandoned()
            case "waiting":
                made = self._waiting()
            case "pending":
                made = self._pending()
            case "needs_attention":
                made = self._stopped()
            case _:
                made = self._finished()
        time, moves = self._time, made.situation not in ("stopped", "finished")
        return replace(
            made,
            why=made.why + (time.in_words(self._now) if moves else ""),
            calls=tuple(self._recorded.open),
            workers=self._workers,
            last=self._recorded.past,
            asked_to_end=self._asked_to_end(),
            deadline=from_micros(time.deadline) if time.deadline else None,
            time_limit=timedelta(microseconds=time.limit) if time.limit else None,
            time_left=timedelta(microseconds=time.left) if time.limit else None,
        )

    # -- what stands around it -----------------------------------------------------------------

    @property
    def _holder(self) -> str | None:
        """The living executor that has the run's branch."""
        ref = self._ref
        if ref is None or ref.held is None or ref.holder is None:
            return None
        return ref.holder if self._backend.alive(ref.holder) else None

    @property
    def _workers(self) -> tuple[str, ...]:
        if self._needs_caller:
            return ()
        run = self._run
        return tuple(
            row.id for row in self._executors if row.runs(run.function, run.queue, run.version)
        )

    @property
    def _had_it(self) -> str | None:
        """The executor that had it last, if that is alive."""
        had = self._recorded.commits[-1].executor if self._recorded.commits else ""
        return had if any(row.id == had and row.alive for row in self._executors) else None

    def _asked_to_end(self) -> datetime | None:
        asked = [message.at for message in self._inbox if message.kind == "cancel"]
        return asked[0] if asked else None

    def _made(
        self,
        situation: Situation,
        why: str,
        since: datetime | int | None,
        ways: Sequence[WayOut | None],
    ) -> Explanation:
        at = from_micros(since) if isinstance(since, int) else since
        known = tuple(way for way in ways if way is not None)
        return Explanation(self._run.id, self._run.status, situation, why, at, ways=known)

    def _cancel(self) -> WayOut | None:
        """The way out that is always there, unless it was gone already."""
        if self._asked_to_end() is not None:
            return None
        return by("or end it", "cancel", self._run.id)

    def _were_arguments_left_out(self, reader: LogReader | None) -> bool:
        """Returns True if the run's arguments are not stored: no worker has them."""
        run = self._run
        if reader is None or not run.started or run.status in FINISHED:
            return False
        began = begin_of(reader.peek(run.started), run.id)
        return began is not None and began.input is None

    def _whom(self) -> str:
        """Returns the workers that would continue it, in words; or that there are none."""
        run = self._run
        if self._needs_caller:
            return "its arguments cannot be stored: only its caller can continue it, not a worker"
        served = [one for row in self._executors if row.alive for one in row.served]
        versions = {run.version, *(one.version for one in served if one.function == run.function)}
        function = in_words(run.function, run.version, plain=versions == {""})
        where = "" if run.queue == "default" else f", queue {run.queue!r}"
        if self._workers:
            many = len(self._workers) > 1
            names = ", ".join(self._workers[:CALLS_SHOWN])
            return f"worker{'s' if many else ''} {names} serve{'' if many else 's'} {function}"
        said = f"no living worker serves {function}{where}"
        if self._had_it is not None:
            return (
                f"{said}, but executor {self._had_it}, which had it last, is alive, and goes on "
                "with it if its program waits for its result"
            )
        others = [row for row in self._executors if row.alive and row.serves]
        if others:
            named = {_served(one) for one in served}
            plain = {queue for _, queue in named} | {run.queue} == {"default"}
            of = [name if plain else f"{name} in queue {q!r}" for name, q in sorted(named)]
            said += f" ({_workers(others)} for {', '.join(of)})"
        return said

    def _get_it_run(self) -> WayOut:
        run = self._run
        if self._needs_caller:
            return WayOut("run its program again: it takes the same call of store.run to go on")
        if self._workers:
            return WayOut(
                "its worker resumes it by itself; if it does not, look at the worker's log"
            )
        queue = {} if run.queue == "default" else {"queue": run.queue}
        words = "run its program again, or start a worker that serves it"
        return by(words, "worker", f"MODULE:{run.function}", **queue)

    # -- who has it ----------------------------------------------------------------------------

    def _executing(self) -> Explanation:
        holder = self._holder
        began: datetime | None = None
        for commit in reversed(self._recorded.commits):
            if commit.executor != holder:
                break
            began = commit.at
        why = f"executor {holder} is executing it"
        why += self._at(live=True)
        asked = self._asked_to_end()
        if asked is not None:
            why += "; it was asked to end, and leaves its function at its next step"
        row = next((row for row in self._executors if row.id == holder), None)
        hangs = "nothing, while it works; if it hangs, end its process, and another one resumes it"
        if row is not None and row.expires < self._backend.now():
            hangs = "its heartbeat is overdue: its process may be stopped, or its machine cut off"
        show = by("see its record", "run show", self._run.id)
        made = self._made("executing", why, began, [WayOut(hangs), show, self._cancel()])
        return replace(made, executor=holder)

    def _abandoned(self) -> Explanation:
        commits = self._recorded.commits
        died = self._ref.holder if self._ref is not None and self._ref.held is not None else None
        had = died or (commits[-1].executor if commits else None)
        last = commits[-1].at if commits else self._run.changed_at
        became = f"executor {had} is gone" if died else f"executor {had} left it unfinished"
        why = f"{became}, and nobody took it over: {self._whom()}"
        why += self._at(live=False)
        made = self._made(
            "abandoned", why, last, [self._get_it_run(), *self._settle(), self._cancel()]
        )
        return replace(made, executor=had)

    def _at(self, *, live: bool) -> str:
        """Returns its place in the code, in words, as far as that is recorded."""
        said: list[str] = []
        for call in self._recorded.open[:CALLS_SHOWN]:
            name = f"{call.place}({call.words})" if call.kind != "wait" else call.place
            name = visible(name)
            since = f"since {clock(call.at)} ({length(self._now - call.at)})"
            if call.kind == "wait":
                said.append(f"waits for {visible(call.words)} at {name} {since}")
            elif call.state in ("to be tried again", "not undone"):
                error = str((call.error or {}).get("text", ""))
                when = f", next one at {moment(call.again_at)}" if call.again_at else ""
                said.append(f"attempt {call.attempts} of {name} failed ({error:.200}){when}")
            elif call.kind == "tool":
                again = f", attempt {call.attempts}," if call.attempts > 1 else ""
                doubt = "" if live else ", whose outcome is in doubt"
                said.append(f"{'is' if live else 'was'} at tool {name}{again} {since}{doubt}")
            else:
                said.append(f"{'is' if live else 'was'} at {name} {since}")
        more = len(self._recorded.open) - CALLS_SHOWN
        if more > 0:
            said.append(f"and {more} more calls")
        if not said:
            last = self._recorded.past
            if last is None or last.ended is None:
                return "; nothing of this turn is recorded yet"
            passed = length(self._now - last.ended)
            said.append(
                f"{'is' if live else 'was'} past {visible(last.place)}, which was recorded "
                f"{moment(last.ended)} ({passed} ago)"
            )
        return "; it " + "; ".join(said)

    # -- whom it waits for ---------------------------------------------------------------------

    def _waiting(self) -> Explanation:
        run = self._run
        came = self._came()
        if came is not None:
            words, since = came
            why = f"{words}, and nobody went on with it since: {self._whom()}"
            if self._holder is not None and self._ahead() is None:
                return self._executing()
            if (self._now - since).total_seconds() < LATE_S:
                if self._workers:
                    why = f"{words}; {self._whom()}, and is about to continue it"
                elif self._had_it is not None:
                    why = f"{words}; {self._whom()}"
            queued = self._queued(f"{words}; ")
            return queued or self._made("due", why, since, [self._get_it_run(), self._cancel()])
        if (circle := self._circle()) is not None:
            return circle
        sleeps = run.waits.startswith(UNTIL)
        why = f"sleeps {run.waits}" if sleeps else f"waits for {visible(run.waits)}"
        if (due := run.wake_at) is not None and not self._ends_at(due):
            when, left = clock(due), length(due - self._now)
            why += f"; its timer is due at {when}, in {left}"
            if sleeps:
                why = f"sleeps until {when}, for {left} more"
        why += self._besides()
        ways = [*self._bring(), self._heed(), self._cancel()]
        return self._made("waiting", why, run.changed_at_micros, ways)

    def _came(self) -> tuple[str, datetime] | None:
        """Returns what came for the run to continue with, in words, and when."""
        news = [m for m in self._news() if self._waits_for(m)]
        if news:
            return _came(news[0]), news[0].at
        wake_at = self._run.wake_at
        if wake_at is not None and wake_at <= self._now:
            if self._ends_at(wake_at):
                return f"its time was up {moment(wake_at)}", wake_at
            return f"its timer was due {moment(wake_at)}", wake_at
        return None

    def _ends_at(self, due: datetime) -> bool:
        """Returns True if what is due then is the end of the run's time."""
        return due in (from_micros(self._time.deadline), from_micros(self._time.up))

    def _news(self) -> list[Message]:
        return [m for m in self._inbox if m.no > self._run.seen or m.kind == "cancel"]

    def _waits_for(self, message: Message) -> bool:
        """Returns True if the run continues with this message, as far as that is recorded."""
        branches = [one for event in self._recorded.open for one in event.branches]
        if message.kind != "signal" or message.name.startswith(CHILD) or not branches:
            return True
        return any(one.kind == "signal" and one.name == message.name for one in branches)

    def _besides(self) -> str:
        """Returns, in words, what came unexpectedly, and what it waited for and refused."""
        said = ""
        others = list(dict.fromkeys(m.name for m in self._news() if not self._waits_for(m)))
        if others:
            names = ", ".join(map(repr, others[:CALLS_SHOWN]))
            said += f"; in its inbox, and not waited for: signal {names}"
        begun = min((event.at for event in self._recorded.open), default=self._now)
        for event in reversed(self._recorded.events):
            if event.kind == "refused" and event.at >= begun:
                return f"{said}; one that came {moment(event.at)} was refused: {event.words}"
        return said

    def _bring(self) -> list[WayOut]:
        """Returns a way out for each thing that the run waits for."""
        ways: list[WayOut] = []
        run = self._run.id
        for event in self._recorded.open:
            for branch in event.branches:
                if branch.kind == "signal":
                    ways.append(by("send the signal", "signal", run, branch.name, "VALUE"))
                elif branch.kind == "ask":
                    words = f"answer {event.question!r}"
                    ways.append(by(words, "answer", run, "VALUE", to=branch.name))
                elif branch.kind == "child":
                    ways.append(of_child(self._backend, run, branch.name.removeprefix(CHILD)))
        return ways

    def _heed(self) -> WayOut | None:
        """Returns a warning if no process would notice the arrival of what the run waits for."""
        if self._workers:
            return None
        words = f"{self._whom()}; when that comes, its program, or a worker, must be running"
        return WayOut(words, self._get_it_run().command)

    # -- obstacles -----------------------------------------------------------------------------

    def _pending(self) -> Explanation:
        run = self._run
        asked = self._asked_to_end()
        queued = self._queued()
        if queued is not None:
            return queued
        if self._holder is not None and run.started:
            return self._executing()
        state = "is ready to continue, but not resumed" if run.started else "has not begun"
        why = f"{state}: {self._whom()}"
        if asked is not None:
            why = f"was asked to end; who picks it up records that: {self._whom()}"
        elif self._workers and (self._now - run.changed_at).total_seconds() < LATE_S:
            why = f"was asked for just now; {self._whom()}, and is about to begin it"
        ways = [self._get_it_run(), self._cancel()]
        return self._made("pending", why, run.changed_at_micros, ways)

    def _ahead(self) -> RunInfo | None:
        return ahead_of(self._backend, self._run)

    def _circle(self) -> Explanation | None:
        """Returns the explanation of a run that waits in a circle, for ever."""
        circle = find_circle(self._backend, self._run.id)
        if circle is None:
            return None
        ends = [by("end one, and the others go on", "cancel", run) for run in circle.waiting]
        why = f"{IN_CIRCLE}: {circle}"
        return self._made("stopped", why, self._run.changed_at_micros, ends or [self._cancel()])

    def _queued(self, before: str = "") -> Explanation | None:
        run, ahead = self._run, self._ahead()
        if ahead is None:
            if self._holder is None or run.started:
                return None
            why = f"{before}executor {self._holder} has branch {run.branch!r} of its agent"
            nothing = WayOut("nothing: it begins when that one is done with it")
            return self._made("queued", why, run.changed_at_micros, [nothing, self._cancel()])
        if (circle := self._circle()) is not None:
            return replace(circle, behind=ahead.id)
        words = f"queued behind run {ahead.id}, which has the branch and {_status(ahead)}"
        if ahead.status == "waiting":
            words += f" for {ahead.waits}"
        ways = [
            by("ask the same of that one", "why", ahead.id),
            by("or end that one", "cancel", ahead.id),
            self._cancel(),
        ]
        return replace(
            self._made("queued", before + words, run.changed_at_micros, ways), behind=ahead.id
        )

    def _settle(self) -> list[WayOut]:
        """Returns the outcomes that a person can record for calls in doubt."""
        ways: list[WayOut] = []
        for event in self._recorded.open:
            if event.state == "open" and (event.kind == "tool" or event.made_at):
                call, run = ("settle", self._run.agent, event.place), self._run.id
                asked = event.made_at and not event.attempts  # made before, and not since
                done, not_done = "took effect", "did not"
                if asked:
                    done, not_done = "is not to be made again", "is, under another key"
                ways += [
                    by(f"{event.place} {done}", *call, run=run, done="JSON"),
                    by(f"{event.place} {not_done}", *call, run=run, not_done=True),
                ]
        return ways

    # -- where it ended ------------------------------------------------------------------------

    def _stopped(self) -> Explanation:
        run = self._run
        problem, *hint = (run.problem or "it stopped").split("\n  → ")
        ways = [WayOut(line.strip()) for line in hint if line.strip()]
        doubts = self._settle()
        ways += doubts
        if not doubts:
            ways.append(by("once that is put right, let it be tried again", "resume", run.id))
        return self._made("stopped", problem, run.changed_at_micros, [*ways, self._cancel()])

    def _unreadable(self, error: Corrupt | UnsupportedFormat) -> Explanation:
        why = f"its record cannot be read: {error}".partition("\n")[0]
        if self._run.status in FINISHED:
            why = f"it is {self._run.status}, as its row says, and {why}"
            return self._made("finished", why, self._run.changed_at_micros, [WayOut(error.hint)])
        ways = [WayOut(error.hint), self._cancel()]
        return self._made("stopped", why, self._run.changed_at_micros, ways)

    def _finished(self) -> Explanation:
        run = self._run
        show = by("see its record", "run show", run.id)
        again = WayOut("nothing more happens to it; to run the same again, use another key")
        if run.status == "done":
            return self._made("finished", "it is done", run.changed_at_micros, [again, show])
        words = "failed" if run.status == "failed" else "was cancelled"
        words = f"it {words}: {run.problem or 'no reason was given'}"
        return self._made("finished", words, run.changed_at_micros, [again, show])


def _status(run: RunInfo) -> str:
    return "needs attention" if run.status == "needs_attention" else f"is {run.status}"


def _workers(rows: Sequence[ExecutorRow]) -> str:
    return "there is a worker" if len(rows) == 1 else f"there are {len(rows)} workers"


def _served(one: Served) -> tuple[str, str]:
    """Returns a function as it is served, with its version, and the queue."""
    version = f" {one.version!r}" if one.version else ""
    replays = f", which replays {', '.join(map(repr, one.replays))}" if one.replays else ""
    return f"{one.function}{version}{replays}", one.queue


def _came(message: Message) -> str:
    who = f" from {message.who}" if message.who else ""
    when = moment(message.at)
    if message.kind == "cancel":
        return f"it was asked to end {when}{who}"
    if message.kind == "signal" and message.name == MOVE:
        return f"its branch was asked to go back {when}{who}"
    if message.kind == "answer":
        return f"an answer came {when}{who}"
    if message.name.startswith(CHILD):
        return f"run {message.name.removeprefix(CHILD)} ended {when}"
    return f"signal {message.name!r} came {when}{who}"
