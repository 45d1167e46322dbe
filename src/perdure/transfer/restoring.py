"""Fills a store with what another had at a moment, also if retention reached that moment later.

What retention removed since the moment is missing in the restored logs, too, and so are earlier
words of retention: so each of these logs gets a word of its own, with what the source's last one
says of the restored commits. Nobody reads the log before that is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice

from perdure.core.format import chain
from perdure.core.format.records import CheckpointRecord, Intent, Named, Outcome
from perdure.errors import Conflict, Corrupt, NotFound, PerdureError
from perdure.missing import MISSING
from perdure.model import UNFINISHED, AgentInfo, from_micros
from perdure.retention.purging import deletes
from perdure.retention.trimming import carry_out
from perdure.state.runs.run_reading import RecordedCalls
from perdure.state.runs.run_rows import RebuiltRows
from perdure.storage.capabilities import Backend, Shipment
from perdure.storage.log.reader import LogReader
from perdure.storage.retention import RETENTION, Trim, stretches
from perdure.storage.standing import Aside, Why, read_why
from perdure.system.urls import same_store
from perdure.transfer.arriving_messages import PAGE, all_mail, taken_by_then
from perdure.transfer.follower import Follower
from perdure.transfer.given_tokens import raise_tokens
from perdure.transfer.incomplete import DoneBeforeError, unfit
from perdure.transfer.living_agents import living
from perdure.transfer.own_words import saying
from perdure.transfer.preconditions import check_able, misfits
from perdure.transfer.retold_messages import retell


def restore(
    follower: Follower, *, take_incomplete: bool = False
) -> tuple[int, int, tuple[Aside, ...]]:
    """Fills an empty target with the logs of a source as they were at a moment, and opens it.

    Args:
        follower: of kind "restoring", with its `until`.
        take_incomplete: leaves out agents whose state of that moment retention removed in part, and
            takes damaged ones as far as they go.

    Returns:
        The numbers of commits and unread messages of the target; and the agents that are left out,
        or incomplete.

    Raises:
        DoneBeforeError: an earlier call filled it with this moment.
        Conflict: retention removed some of the states of that moment.
        IncompleteError: agents are damaged at the source; or the target cannot take all of them,
            and nothing was written.
        as `Follower.begin` and `Follower.step`.
    """
    source, target, until = follower.source, follower.target, follower.why.until
    done = Why("restored", source.url, until=until)
    _refuse_restored(target, done)
    left_out: list[Aside] = []
    logs = [*_logs(source)]
    any_purged = any(info.purged for info in logs)
    later = _first_later(source, logs, until) if any_purged else None
    for info in logs:
        try:
            if info.purged:
                _refuse_purged(source, info, until, later)
            _trimmed_since(source, info, until)
        except Corrupt:
            continue  # how far such an agent comes, the follower finds out
        except Conflict as error:
            if not take_incomplete:
                raise
            left_out.append(Aside(info.name, info.incarnation, 1, error.problem, source.now()))
    if target.standing() is None and not take_incomplete:
        check_able(target)
        if unable := misfits(source, iter(logs)):
            raise unfit(unable)
    follower.shipper.left_out = {one.agent for one in left_out}
    follower.begin()
    follower.complete()  # also what another's open transaction holds back from the feed
    if not take_incomplete:
        follower.check_complete("the target does not open yet")
    for info, refusal in _purged_meanwhile(source, target, logs, until):
        if not take_incomplete:
            raise _overtaken(refusal, target)
        if info.name not in {one.agent for one in left_out}:
            left_out.append(Aside(info.name, info.incarnation, 1, refusal.problem, source.now()))
    aside = {one.agent for one in follower.aside}  # their logs say so as they open
    for info in (one for one in living(target) if one.name not in aside):
        try:
            _say_what_is_gone(source, target, info, until)
        except Conflict as error:  # it was there before, or nothing would have been written
            raise _overtaken(error, target) from error
    taken = taken_by_then(source, target, until)
    while part := [*islice(taken, PAGE)]:
        target.ship(Shipment(messages=part))
    raise_tokens(target, None)
    retell(source, target, until)
    came = (target.agent(info.name, info.incarnation) for info in logs)
    commits = sum(info.seq for info in came if info is not None and not info.purged)
    unread = sum(message.value is not MISSING for message in all_mail(target))
    follower._set_standing(done.standing(), incomplete=aside)
    return commits, unread, (*left_out, *follower.aside)


def _refuse_restored(target: Backend, done: Why) -> None:
    """Refuses to fill a store that has been filled so, whatever became of it since.

    Raises:
        DoneBeforeError: it has.
    """
    why = read_why(target.standing())
    if why is None or (why.kind, why.until) != (done.kind, done.until):
        return
    if same_store(why.url, done.url):
        raise DoneBeforeError(
            f"was restored from {done.url} before, as of {from_micros(done.until).isoformat()}",
            target=f"store {target.url}",
            hint="it is a store of its own since; to restore that moment again, take a new one",
        )


def _purged_meanwhile(
    source: Backend, target: Backend, logs: Sequence[AgentInfo], until: int
) -> Iterator[tuple[AgentInfo, Conflict]]:
    """Yields the logs that were purged before they were read, and may be missing, with the
    refusals."""
    for info in logs:
        now, there = (one.agent(info.name, info.incarnation) for one in (source, target))
        if info.purged or now is None or not now.purged or (there and not there.purged):
            continue
        try:
            _refuse_purged(source, now, until, _first_later(source, logs, until))
        except Conflict as error:
            yield info, error


def _overtaken(error: Conflict, target: Backend) -> Conflict:
    """Returns the error of a restore that retention overtook."""
    return Conflict(
        f"{error.problem}, while it was restored",
        target=error.target,
        hint=f"a part of it is in {target.url}, which does not open: delete that, and "
        "restore into a new store",
    )


def _logs(source: Backend) -> Iterator[AgentInfo]:
    """Yields all agents, deleted ones too: at the moment they may have lived."""
    there: set[tuple[str, int]] = set()
    cursor = ""
    try:
        while (part := source.feed(cursor)).entries:
            there |= {(fed.agent, fed.incarnation) for fed in part.entries}
            cursor = part.cursor
    except Corrupt:  # who is damaged, the follower finds out
        there |= {(info.name, info.incarnation) for info in living(source)}
    for name, incarnation in sorted(there):
        if (info := source.agent(name, incarnation)) is not None:
            yield info


def _say_what_is_gone(source: Backend, target: Backend, info: AgentInfo, until: int) -> None:
    there = source.agent(info.name, info.incarnation)
    said = _trimmed_since(source, there, until) if there is not None else None
    if said is None:
        return
    reader = LogReader(target, info)
    (row,) = target.read(info.no, info.seq, info.seq)
    tail = chain.tail_of(row.header, reader.target(info.seq))
    if tail.at <= until:  # else it was said before this was ended, and began again
        word = Trim(
            0,
            tail.seq,
            reader.last_word(),
            said.before,
            stretches(seq for seq in said.seqs() if seq <= tail.seq),
            {seq: digest for seq, digest in said.bases.items() if seq <= tail.seq},
        )
        target.ship(Shipment([saying(target, reader, word, tail)]))
    carry_out(target, reader)


def _trimmed_since(source: Backend, info: AgentInfo, until: int) -> Trim | None:
    """Returns what retention removed from a log since a moment; None if nothing, or there was no
    log yet.

    Raises:
        Conflict: something removed is needed at that moment.
    """
    if info.purged:
        return None
    try:
        return _read_trimmed_since(source, info, until)
    except NotFound:
        now = source.agent(info.name, info.incarnation)
        if now is None or not now.purged:
            raise
        _refuse_purged(source, now, until, None)  # it was, while it was read
        return None


def _read_trimmed_since(source: Backend, info: AgentInfo, until: int) -> Trim | None:
    reader = LogReader(source, info)
    said = reader.trim()
    if said is None:
        return None
    last = reader.last_at(from_micros(until))
    if said.at <= last or not last:
        return None
    if said.before > last:
        horizon = reader.peek(min(said.before, reader.last_seq()))
        raise _removed(source, info, until, f"what was before {horizon.at.isoformat()}")
    for seq, what in _needed(reader, last):
        if not said.keeps_state(seq):
            raise _removed(source, info, until, f"the state of commit {seq}, {what} then")
    for seq, run in _turns(reader, last):
        if seq < said.before:
            raise _removed(source, info, until, f"a part of what run {run} had done by then")
    for place, run in _in_doubt(reader, last):
        raise _removed(source, info, until, f"call {place} of run {run}, which was in doubt then")
    return said


def _first_later(source: Backend, logs: Iterable[AgentInfo], until: int) -> int | None:
    """Returns the lowest number of an agent that is known to have begun after a moment; None if
    none is. Agents with higher numbers began later, too, unless their logs came from elsewhere."""
    numbers: list[int] = []
    for info in logs:
        with suppress(PerdureError):  # who is damaged, the follower finds out
            if not info.purged and LogReader(source, info).commit(1).at_micros > until:
                numbers.append(info.no)
    return min(numbers, default=None)


def _refuse_purged(source: Backend, info: AgentInfo, until: int, later: int | None) -> None:
    """Refuses to restore a purged log, of which only its deletion, with its hash, is left.

    Raises:
        Conflict: it was deleted after that moment, and may have been there then.
    """
    deleted = LogReader(source, info).commit(info.seq)
    if deleted.at_micros <= until:
        return
    began = max((one.began for one in deleted.typed if deletes(one)), default=0)
    if began <= until if began else later is None or info.no < later:
        raise _removed(source, info, until, "all of it, if it was there then: it was purged")


def _removed(source: Backend, info: AgentInfo, until: int, what: str) -> Conflict:
    return Conflict(
        f"retention removed {what}",
        target=f"agent {info.name!r} of {source.url}",
        hint=f"restore a moment from then on, {from_micros(until).isoformat()} is before; or leave "
        "such agents out: take_incomplete=True (--take-incomplete)",
    )


def _needed(reader: LogReader, last: int) -> Iterator[tuple[int, str]]:
    """Yields the commits whose states had names after a commit, with the names."""
    names: dict[str, tuple[int, str]] = {}
    for commit in reader.commits(1, last):
        names[commit.branch] = commit.seq, f"the head of branch {commit.branch!r}"
        for record in commit.typed:
            match record:
                case CheckpointRecord(name=name):
                    names[name] = record.seq or commit.seq, f"checkpoint {name!r}"
                case Named(name=name):
                    names.pop(name, None)
    names.pop(RETENTION, None)
    yield from names.values()


def _turns(reader: LogReader, last: int) -> Iterator[tuple[int, str]]:
    """Yields the begins of the current turns of the runs that were unfinished after a commit."""
    rows = RebuiltRows()
    for commit in reader.commits(1, last):
        rows.after(commit)
    yield from ((row.turn_at, row.id) for row in rows.rows.values() if row.status in UNFINISHED)


def _in_doubt(reader: LogReader, last: int) -> Iterator[tuple[str, str]]:
    """Yields the tool calls that were in doubt after a commit, and whose begins are removed: a
    person settled them since. What an unfinished run has under way is in its turn."""
    calls, known = RecordedCalls(), set[str]()
    for commit in reader.commits(damaged_too=True):
        for record in commit.typed:
            call = calls.key_of(record) or f"{record.run} {record.place}"
            settled = isinstance(record, Outcome) and record.by_person
            if settled and commit.seq > last and call not in known:
                yield record.place, record.run
            if settled or isinstance(record, Intent):
                known.add(call)
