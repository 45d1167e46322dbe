"""From one store's feed into another store: each commit is checked, linked, and written as it is.

It always continues from what the target has: so it may be killed at any moment.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from perdure.core.format import chain
from perdure.errors import Corrupt, StoreUnavailable
from perdure.model import AgentInfo, Message, RunInfo
from perdure.storage.answers import Standing
from perdure.storage.appending import Append
from perdure.storage.capabilities import Backend, RunQuery, Shipment
from perdure.storage.keys import find_key
from perdure.storage.log.chunk_size import CHUNK_FIRST, ChunkSize
from perdure.storage.port import Fed, StoredCommit
from perdure.storage.retention import RETENTION
from perdure.storage.standing import Aside, Why, is_of_the_store
from perdure.system import logs
from perdure.transfer.arriving_messages import Arriving, all_mail
from perdure.transfer.divergence import DivergedError, Divergence, diverged, first_difference
from perdure.transfer.incoming_log import LogEnd
from perdure.transfer.own_words import NO_STATE, stateless
from perdure.transfer.preconditions import lost_end
from perdure.transfer.removal_at_copy import RemovalAtCopy
from perdure.transfer.shipping_order import Load, refuted_from, snapshot_of

_log = logs.logger("perdure.replication")

FEED = ""
"""Stands among those that are set aside for the source's feed, if it cannot be read."""

PROBLEM_MAX = 300
LINES_MAX = 10_000
SHIPMENT_BYTES = 16_000_000
"""About as much goes into one transaction, but always one commit at least."""


class Shipper:
    """Ships commits from one store to another. Not safe between threads.

    An agent whose commits cannot be taken, for a reason of its own, is set aside: those of others
    still come. `retry` tries it again, from where its log ends here.

    Args:
        until: commits and messages later than this, in microseconds since 1970, are left out;
            0: none.

    Attributes:
        latest: time of the latest commit that was shipped, in microseconds since 1970.
        aside: the agents that are set aside, by name.
        isolating: True takes a refused shipment apart, to find the agent that is the cause.
            Otherwise the error is raised: often a fresh read succeeds.
        left_out: names of agents that are not shipped.
        settled: names of agents that are set aside for good: they go on without the rest.
    """

    def __init__(self, source: Backend, target: Backend, until: int = 0) -> None:
        self.source = source
        self.target = target
        self._until = until
        self._lines: OrderedDict[tuple[str, int], LogEnd] = OrderedDict()
        self._standing: Standing | None = None
        self._said: Why | None = None
        self.latest = 0
        self.aside: dict[str, Aside] = {}
        self._retried: dict[str, Aside] = {}  # still aside in what the target says of itself
        self._removal = RemovalAtCopy(source, target, restores=bool(until))
        self.isolating = False
        self.left_out: set[str] = set()
        self.settled: set[str] = set()

    def go_on_from(self, standing: Standing | None, why: Why | None) -> None:
        """Sets the standing of the target, which must be unchanged at the next shipment."""
        self._standing, self._said = standing, why
        self.aside = {one.agent: one for one in (why.aside if why is not None else ())}
        self._removal.untidy = set(why.untidy if why is not None else ())
        self._lines.clear()

    def ship(
        self,
        entries: Iterable[Fed],
        messages: Sequence[Message] = (),
        why: Why | None = None,
        epochs: Sequence[tuple[str, int, str, int]] = (),
        of: AgentInfo | None = None,
    ) -> int:
        """Ships what the target does not have yet, in a few transactions; returns the number of
        commits.

        Args:
            why: the target's standing, written along with the last of them.
            of: the agent of all entries: it is set aside, too, if they cannot be read.

        Raises:
            DivergedError: the target has another commit at the place of one of these.
            OvertakenError: another process ships into it.
        """
        try:
            shipped, load = 0, Load()
            if self.left_out:
                messages = [one for one in messages if one.agent not in self.left_out]
            for fed in self._readable(entries, of):
                if fed.agent in self.aside or fed.agent in self.left_out:
                    continue
                try:
                    self._load(fed, load)
                except (StoreUnavailable, DivergedError, MemoryError):
                    raise
                except Exception as error:
                    load.drop(fed.agent, fed.incarnation, refuted_from(self.source, fed, load))
                    loaded = [one.seq for one in load.appends if one.agent == fed.agent]
                    self._set_aside(fed.agent, error, have=max(loaded, default=0))
                if load.size >= SHIPMENT_BYTES:
                    shipped += self._send(load, messages)
                    load, messages = Load(), ()
            self._drop_stateless(load)
            if load.agents() or messages or epochs or why is not None:
                shipped += self._send(load, messages, why, epochs)
            return shipped
        except BaseException:
            self._lines.clear()  # they may be ahead of what got in
            raise

    def _readable(self, entries: Iterable[Fed], of: AgentInfo | None) -> Iterator[Fed]:
        try:
            yield from entries
        except (StoreUnavailable, GeneratorExit, MemoryError):
            raise
        except Exception as error:
            if of is None:
                raise
            self._set_aside(of.name, error)

    # -- who is set aside ------------------------------------------------------------------------

    def _set_aside(
        self, agent: str, error: Exception, *, mail: bool = False, have: int = 0
    ) -> None:
        """Sets an agent aside. `have`: the seq that is about to be there; 0: nothing more than
        is."""
        for key in [key for key in self._lines if key[0] == agent]:
            del self._lines[key]
        before = self.aside.get(agent)
        there = self.target.agent(agent) if agent else None
        incarnation, seq = (there.incarnation, there.seq) if there is not None else (1, 0)
        problem = f"{type(error).__name__}: {error}".splitlines()[0][:PROBLEM_MAX]
        since = before.since_micros if before is not None else self.source.now()
        mail = mail or (before is not None and before.mail)
        self.aside[agent] = Aside(agent, incarnation, (have or seq) + 1, problem, since, mail)
        _log.warning("agent %r is set aside in %s: %s", agent, self.target.url, problem)

    def _drop_stateless(self, load: Load) -> None:
        """Leaves out what would be agents without a state: of those that were just set aside, where
        retention removed what was before."""
        for agent, incarnation in stateless(self.source, load, self.aside):
            load.drop(agent, incarnation)
            aside, there = self.aside[agent], self.target.agent(agent)
            problem = f"{NO_STATE}: {aside.problem}"[:PROBLEM_MAX]
            seq = (there.seq if there is not None else 0) + 1
            self.aside[agent] = replace(aside, seq=seq, problem=problem)
            _log.warning("agent %r: %s", agent, NO_STATE)

    def set_feed_aside(self, error: Exception) -> None:
        """Notes that the source's feed cannot be read: its agents' logs are read one by one."""
        self._set_aside(FEED, error)

    @property
    def retries(self) -> bool:
        """True if there is something to `retry`."""
        return bool(self.aside) or self._removal.left

    def retry(self) -> int:
        """Ships set-aside agents as far as possible, and removes what could not be removed;
        returns the number of commits. An agent that still cannot be taken is set aside again."""
        if self._removal.left:
            self.tidy()
        shipped = 0
        for name, before in sorted(self.aside.items()):
            if name == FEED or name in self.settled:
                continue
            self._retried = {name: self.aside.pop(name)}
            try:
                shipped += self._retry(name, before)
            except BaseException:
                self.aside[name] = before
                raise
            finally:
                self._retried = {}
            if name in self.aside:
                self.aside[name] = replace(self.aside[name], since_micros=before.since_micros)
            if self._now_said(None, self._removal.untidy) != self._said:
                self._send_whole(Load(), ())
        return shipped

    def _retry(self, name: str, before: Aside) -> int:
        info = self.source.agent(name)
        if info is None:
            self.aside[name] = before
            return 0
        messages: list[Message] = []
        if before.mail:
            messages = [one for one in all_mail(self.source) if one.agent == name]
        isolating, self.isolating = self.isolating, True
        try:
            rest = itertools.chain(self._removal.missed(name), self.rest_of(name, info.incarnation))
            return self.ship(rest, messages, of=info)
        finally:
            self.isolating = isolating

    def forget(self) -> None:
        """Forgets what is known of the target: another process may have shipped into it."""
        self._lines.clear()

    def rest_of(self, agent: str, incarnation: int) -> Iterator[Fed]:
        """Yields what the target lacks of one log, read from the source."""
        info = self.source.agent(agent, incarnation)
        if info is None:
            return
        named = max((ref.seq for ref in self.source.refs(info.no)), default=0)
        first = self._line(agent, incarnation).seq + 1
        chunk = ChunkSize()
        while rows := self.source.read(info.no, first, info.seq, limit=chunk.now):
            chunk.read(rows)
            for row in rows:
                yield Fed(info.no, agent, incarnation, row)
            first = rows[-1].seq + 1
        for problem in lost_end(self.source, info, named):
            raise Corrupt(problem, target=f"agent {agent!r}", hint=chain.HINT)

    # -- one commit ------------------------------------------------------------------------------

    def _load(self, fed: Fed, load: Load) -> None:
        if self._until and self._time_of(fed) > self._until:
            return
        line = self._line(fed.agent, fed.incarnation)
        if fed.commit.seq <= line.seq:
            self._check_same(fed, load)
            if fed.commit.seq == line.seq and self._is_purged(fed):
                self._purge_too(fed, load)
            return
        if not line.seq and fed.incarnation > 1:
            self._finish(fed.agent, fed.incarnation - 1, load)
        if fed.commit.seq > line.seq + 1:  # the target lost its end, or a cursor is too new
            between = self.source.read(fed.no, line.seq + 1, fed.commit.seq - 1)
            if len(between) < fed.commit.seq - 1 - line.seq and self._is_purged(fed):
                self._bury(fed, load)
                return
            for row in between:
                self._add(line, Fed(fed.no, fed.agent, fed.incarnation, row), load)
        self._add(line, fed, load)
        if line.lacks and not self._until:
            self._add_word(line, fed, load)

    def _add_word(self, line: LogEnd, fed: Fed, load: Load) -> None:
        """Adds the word of retention to the removed commits: a follower that lost its source before
        the word came would have a log with holes."""
        while (word := self.source.ref(fed.no, RETENTION)) is not None and word.seq > line.seq:
            rows = self.source.read(fed.no, line.seq + 1, word.seq, limit=CHUNK_FIRST)
            if not rows or rows[0].seq != line.seq + 1:
                return  # it is being purged: its deletion comes
            for row in rows:
                self._add(line, Fed(fed.no, fed.agent, fed.incarnation, row), load)

    def _is_purged(self, fed: Fed) -> bool:
        info = self.source.agent(fed.agent, fed.incarnation)
        return info is not None and info.purged

    def _purge_too(self, fed: Fed, load: Load) -> None:
        """Has a log purged of which the target has all, or is about to."""
        there = self.target.agent(fed.agent, fed.incarnation)
        if there is None or there.seq < fed.commit.seq:
            self._bury(fed, load)
        elif not there.purged:
            load.to_purge.append((fed.agent, fed.incarnation))

    def _bury(self, fed: Fed, load: Load) -> None:
        """Takes what is left of a log that was purged before the target had all of it."""
        row = fed.commit
        commit = chain.read_commit(fed.agent, row.seq, row.header, row.payload)
        if commit.cause.kind != "delete":
            return  # its last one comes in a moment
        self._lines.pop((fed.agent, fed.incarnation), None)
        load.drop(fed.agent, fed.incarnation)
        load.deleted.append(fed.agent)
        place = commit.agent, None, commit.incarnation, commit.seq
        behind = chain.LogTail(commit.seq - 1, commit.prev, 0)
        grave = Append(*place, row.header, row.payload, commit.branch, None, behind=behind)
        load.graves.append(grave)

    def _time_of(self, fed: Fed) -> int:
        return chain.tail_of(fed.commit.header, f"agent {fed.agent!r}, commit {fed.commit.seq}").at

    def _finish(self, agent: str, incarnation: int, load: Load) -> None:
        """Finishes the name's previous incarnation: the next one begins only after that has
        ended."""
        for fed in self.rest_of(agent, incarnation):
            self._load(fed, load)

    def _add(self, line: LogEnd, fed: Fed, load: Load) -> None:
        row = fed.commit
        commit = chain.read_commit(fed.agent, row.seq, row.header, row.payload)
        if commit.incarnation != fed.incarnation:
            raise Corrupt(
                "belongs to another incarnation",
                target=f"agent {fed.agent!r}, commit {row.seq}",
                hint=chain.HINT,
            )
        if line.last is not None and commit.prev != line.last.id and commit.seq == line.seq + 1:
            self._refuse(fed)
        key = commit.cause.key
        noted = find_key(self.source, fed.no, key) if key is not None else None
        digest = noted[1] if noted is not None and noted[0] == commit.seq else None
        item = line.append(commit, row.header, row.payload, digest)
        if row.snapshotted:
            load.snapshots[fed.agent, fed.incarnation] = (fed.no, item)
        if item.riders.delete_agent and self._is_purged(fed):  # by its name: it does not say so
            item.riders = replace(item.riders, purge=True)
        load.add(commit, item)
        load.size += commit.size

    def _check_same(self, fed: Fed, load: Load) -> None:
        """Checks a commit that comes again against the one that is there."""
        pending = next(
            (
                a.header
                for a in reversed(load.appends)
                if (a.agent, a.incarnation, a.seq) == (fed.agent, fed.incarnation, fed.commit.seq)
            ),
            None,
        )
        info = self.target.agent(fed.agent, fed.incarnation)
        rows: list[StoredCommit] = []
        if pending is None and info is not None:
            rows = self.target.read(info.no, fed.commit.seq, fed.commit.seq)
            if info.purged and not rows:
                return
        if fed.commit.header not in (pending, *(row.header for row in rows)):
            self._refuse(fed)
        self.latest = max(self.latest, self._time_of(fed))

    def _refuse(self, fed: Fed) -> None:
        """Raises the error that says where the logs part; if they do not, the source's own chain is
        broken.

        Raises:
            DivergedError, Corrupt: one of the two cases.
        """
        info = self.source.agent(fed.agent, fed.incarnation)
        found = info and first_difference(self.source, info, self.target)
        if isinstance(found, Divergence) and not found.behind:
            raise diverged((found,), self.target.url)
        raise Corrupt(
            "does not follow the one before it",
            hint=chain.HINT,
            target=f"agent {fed.agent!r}, commit {fed.commit.seq} of {self.source.url}",
        )

    def _line(self, agent: str, incarnation: int) -> LogEnd:
        """Returns the end of the target's log of an agent."""
        line = self._lines.pop((agent, incarnation), None)
        if line is None:
            line = self._read_line(agent, incarnation)
        self._lines[agent, incarnation] = line
        if len(self._lines) > LINES_MAX:
            self._lines.popitem(last=False)
        return line

    def _read_line(self, agent: str, incarnation: int) -> LogEnd:
        target = self.target

        def find_row(run: str) -> RunInfo | None:
            return next(iter(target.runs(RunQuery(run_id=run))), None)

        info = target.agent(agent, incarnation)
        if info is None:
            return LogEnd(find_row=find_row)
        row = target.read(info.no, info.seq, info.seq)[0]
        last = chain.read_commit(agent, row.seq, row.header, row.payload)
        heads = {ref.name: ref.seq for ref in target.refs(info.no) if ref.kind == "branch"}
        return LogEnd(last, heads, find_row)

    # -- all of a shipment -----------------------------------------------------------------------

    def _send(
        self,
        load: Load,
        messages: Sequence[Message],
        why: Why | None = None,
        epochs: Sequence[tuple[str, int, str, int]] = (),
    ) -> int:
        *before, load = load.in_order()
        shipped = 0
        for part in before:
            shipped += self._send_part(part, messages)
            messages = ()
        return shipped + self._send_part(load, messages, why, epochs)

    def _send_part(
        self,
        load: Load,
        messages: Sequence[Message],
        why: Why | None = None,
        epochs: Sequence[tuple[str, int, str, int]] = (),
    ) -> int:
        try:
            return self._send_whole(load, messages, why, epochs)
        except Exception as error:
            if not self.isolating or is_of_the_store(error):
                raise
            # If the target takes nothing at all, no agent's commits are the reason.
            self.target.ship(Shipment(after=self._standing))
        shipped = 0
        for agent in sorted(load.agents() | {message.agent for message in messages}):
            shipped += self._send_one(agent, load, messages)
        epochs = [one for one in epochs if one[0] not in self.aside]
        return shipped + self._send_whole(Load(), (), why, epochs)

    def _send_one(self, agent: str, load: Load, messages: Sequence[Message]) -> int:
        shipped, mail = 0, [message for message in messages if message.agent == agent]
        try:
            if mail:
                self._send_whole(Load(), mail)
                mail = []
            for part in load.of(agent):
                shipped += self._send_whole(part, ())
        except Exception as error:
            if is_of_the_store(error):
                raise
            self._set_aside(agent, error, mail=bool(mail))
        return shipped

    def _send_whole(
        self,
        load: Load,
        messages: Sequence[Message],
        why: Why | None = None,
        epochs: Sequence[tuple[str, int, str, int]] = (),
    ) -> int:
        for no, item in load.snapshots.values():
            item.snapshot = snapshot_of(self.source, no, item)
        ended = [run for _, run in load.ended]
        commits = [commit for commit, _ in load.commits]
        mail = Arriving(
            self.source, self.target, messages, commits, ended, load.deleted, self._until
        )
        self.latest = max([self.latest, *(commit.at_micros for commit in commits)])
        untidy = {item.agent for item in load.appends if item.branch == RETENTION}
        said = self._now_said(why, self._removal.untidy | untidy)
        standing = said.standing() if said is not None and said != self._said else None
        self.target.ship(
            Shipment(
                load.appends,
                mail.messages,
                0,
                epochs,
                standing,
                load.graves,
                mail.taken,
                self._standing,
                to_purge=load.to_purge,
            )
        )
        self._said = said
        if standing is not None:
            self._standing = standing
        if load.graves or load.to_purge or load.deleted:
            self._removal.purge()
        self._removal.untidy |= untidy
        self._removal.trim(untidy)
        for agent, incarnation in {(item.agent, item.incarnation) for item in load.appends}:
            if line := self._lines.get((agent, incarnation)):
                line.runs.forget_finished()
        return len(load.appends) + len(load.graves) + len(load.to_purge)

    def _now_said(self, why: Why | None, untidy: set[str]) -> Why | None:
        """Returns the target's standing from this shipment on. Without newer cursors, it keeps the
        previous ones."""
        if why is None and self._said is None:
            return None
        base = why or self._said
        assert base is not None
        aside = tuple(one for _, one in sorted((self._retried | self.aside).items()))
        at = max(base.at, self.latest) if why is not None else base.at
        return replace(base, at=at, aside=aside, untidy=tuple(sorted(untidy)))

    def tidy(self) -> None:
        """Removes what an interrupted follower left to be removed."""
        self._removal.purge()
        self._removal.trim(set(self._removal.untidy))
