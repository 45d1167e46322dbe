"""The checks that `repair` makes of each agent before its pages get their checksums back.

A log proves its commits, and what stands beside it: names, keys, runs. Where it and the tables
differ, the repair is refused: otherwise an agent would be at another commit than it was, or make a
call twice. The content of a damaged commit is lost, and reported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec.structs import replace

from perdure.core.format import chain
from perdure.errors import Corrupt, UnsupportedFormat
from perdure.model import AgentInfo, Verified
from perdure.retention.purging import deletes
from perdure.storage.appending import Ref
from perdure.storage.capabilities import Backend
from perdure.storage.log.reader import LogReader
from perdure.storage.log.way_back import PUT_BACK
from perdure.verification.findings import TOLD_MAX
from perdure.verification.lost_rows import lost_names, unlisted
from perdure.verification.snapshot_removal import drop_snapshots
from perdure.verification.verify import verify_log

BESIDE = frozenset({"refs", "keys", "runs"})
"""Tables of what a log says, too."""

WAY_OUT = (
    "restore it from a copy; or, where there is none, `perdure repair --take-incomplete`: it keeps "
    "the file as it is beside it, and makes everything usable that is whole. Until then no command "
    "can read what is on the damaged pages; after it, the ways back below work"
)

TAKE = (
    "nothing was changed. Restore the store from a copy; or, if another SQLite had it open "
    "after a crash, or there is no copy: `perdure repair --take-incomplete` keeps the file as it "
    "is beside it, and takes them as they are. Look at each before it is used"
)

BEHIND = "are lost: they were behind the damage of the write-ahead log"

LEFT = f"the checksums stay as they are; {chain.HINT}"


class Doubtful(Protocol):
    """The content of pages that fail their checksums; see
    `perdure.storage.sqlite.proofs.DoubtfulPages`."""

    @property
    def tables(self) -> frozenset[str]: ...
    @property
    def commits(self) -> tuple[bytes, ...] | None: ...
    @property
    def keyed(self) -> frozenset[int]: ...
    def may_hold(self, header: bytes) -> bool: ...


class Proof:
    """The proofs of all agents of a store, one by one.

    Attributes:
        agents: the proved and unproved parts of each.
    """

    def __init__(self, *, take_incomplete: bool) -> None:
        self.agents: list[Verified] = []
        self._take_incomplete = take_incomplete
        self._doubtful: frozenset[str] = frozenset()
        self._keyed: frozenset[int] = frozenset()
        self._may_hold: Callable[[bytes], bool] = lambda _: False
        self._mail: dict[str, list[str]] = {}
        self._broken: list[tuple[LogReader, list[int]]] = []
        self._told: dict[int, list[str]] = {}
        self._last: dict[int, tuple[str, int]] = {}

    def lost(self, last: Mapping[int, tuple[str, int]]) -> None:
        """Notes agents whose last commits may be lost, by number: the name, if it is known, and the
        last seq."""
        self._last = dict(last)

    def doubt(self, backend: Backend, doubtful: Doubtful) -> None:
        """Notes the content of pages that fail their checksums."""
        self._doubtful, self._keyed = doubtful.tables, doubtful.keyed
        if doubtful.commits != ():
            self._may_hold = doubtful.may_hold
        if "inbox" in doubtful.tables:
            for one in backend.inbox():
                told = f"agent {one.agent!r}: the {one.kind} {one.name!r} for run {one.run}"
                self._mail.setdefault(one.agent, []).append(f"{told}: nothing proves what it says")

    def unlisted(self, backend: Backend, no: int) -> AgentInfo | None:
        """Returns the agent that has a log under a number that is not listed; None if the log does
        not say."""
        info = unlisted(backend, no)
        if info is not None:
            told = f"agent {info.name!r}: it was not listed, and is again, as its log says"
            self._told.setdefault(no, []).append(told)
        return info

    def lost_names(self, backend: Backend, info: AgentInfo) -> list[Ref]:
        """Returns the names of an agent that differ in its log, as they are to be restored."""
        refs, told = lost_names(backend, info)
        self._told.setdefault(info.no, []).extend(told)
        return refs

    def prove(self, backend: Backend, info: AgentInfo) -> None:
        """Proves one agent.

        Raises:
            Corrupt, UnsupportedFormat: the file is to stay as it is.
        """
        reader, damaged = LogReader(backend, info), list[int]()
        _, last = self._last.pop(info.no, ("", 0))
        if last > info.seq:
            told = f"agent {info.name!r}: its commits from {info.seq + 1} to {last}, or more, "
            told += f"{BEHIND}. What its runs did in them may be done again"
            self._told.setdefault(info.no, []).append(told)
        try:
            found = verify_log(backend, reader, damaged=damaged)
        except Corrupt as error:
            if not error.damages or error.beside:
                if not self._take_incomplete:
                    if lost_names(backend, info)[0]:
                        raise _with_hint(error, f"{error.hint}. {PUT_BACK}") from error
                    raise  # as it is: an error must not be its own cause, round and round
                raise _refusal(error) from error
            if not self._take_incomplete:
                raise _with_hint(error, f"{WAY_OUT}\n  → {error.hint}") from error
            found = self._incomplete(reader, info, error)
        except UnsupportedFormat as error:
            if not self._take_incomplete:
                raise
            found = self._incomplete(reader, info, self._judged(backend, info, error))
        if "agents" in self._doubtful:
            _check_listed(reader, info)
        if found.head and self._may_hold(_last_header(backend, info)):
            told = f"{reader.target(found.commits)}: it is the last one, so no later commit proves"
            told += " who made it, when and why; its payload is proved"
            found = replace(found, damages=(*found.damages, told))
        if found.head and info.no in self._keyed:
            told = f"{reader.target()}: its keys are those of its log, and nothing proves what they"
            found = replace(found, damages=(*found.damages, f"{told} were used for"))
        latest = backend.agent(info.name)
        if latest is not None and latest.no == info.no:
            found = replace(found, damages=(*found.damages, *self._mail.pop(info.name, ())))
        found = replace(found, damages=(*self._told.get(info.no, ()), *found.damages))
        self.agents.append(found)
        self._broken.append((reader, damaged))

    def conclude(self, backend: Backend) -> None:
        """Removes damaged snapshots, once all agents are proved.

        Raises:
            Corrupt: some of it is unproved, and it is not to be taken.
        """
        for name, damages in self._mail.items():  # of agents that have not begun
            self.agents.append(Verified(name, 0, 0, b"", damages=tuple(damages)))
        for no, (name, last) in self._last.items():
            name = name or f"(number {no})"
            told = f"agent {name!r}: all of its commits, {last} or more, {BEHIND}"
            self.agents.append(Verified(name, 0, 0, b"", damages=(told,)))
        if not self._take_incomplete:
            _refuse_unproved([told for one in self.agents for told in one.damages])
        for reader, damaged in self._broken:
            drop_snapshots(backend, reader, damaged)

    def _judged(
        self, backend: Backend, info: AgentInfo, error: UnsupportedFormat
    ) -> Corrupt | UnsupportedFormat:
        """Returns the error; what looks like a newer version's data may be damage, on a page that
        fails its checksum."""
        rows = backend.read(info.no, error.seq, error.seq) if error.seq else []
        if not rows or not self._may_hold(rows[0].header):
            return error
        return Corrupt(
            f"{error.problem}, on a page that fails its checksum",
            target=error.target,
            hint=error.hint,
            seq=error.seq,
            before=error.before,
        )

    def _incomplete(
        self, reader: LogReader, info: AgentInfo, error: Corrupt | UnsupportedFormat
    ) -> Verified:
        damages = getattr(error, "damages", ()) or (f"{error.target}: {error.problem}",)
        if self._doubtful & BESIDE:
            damages = (
                *damages,
                f"{reader.target()}: its branches, checkpoints, keys and runs may be wrong: their "
                "pages fail their checksums, and a damaged log does not prove them",
            )
        return Verified(info.name, info.seq, 0, b"", damages=damages, before=error.before)


def _refuse_unproved(damages: list[str]) -> None:
    """Refuses a repair of unproved data: once a page has a valid checksum, it is believed."""
    if not damages:
        return
    lines = [f"\n? {told}" for told in damages[:TOLD_MAX]]
    left = f"\n… and {len(damages) - TOLD_MAX} more" * (len(damages) > TOLD_MAX)
    error = Corrupt(
        "each log is whole; but nothing proves this content of pages that fail their checksums:"
        + "".join(lines)
        + left,
        hint=TAKE,
    )
    error.damages = tuple(damages)
    raise error


def _refusal(error: Corrupt) -> Corrupt:
    refused = _with_hint(error, LEFT)
    if error.beside:
        refused.problem, refused.target = "; ".join(error.beside), ""
    return refused


def _with_hint(error: Corrupt, hint: str) -> Corrupt:
    """Returns a copy of the error with another hint; it can be raised from the original."""
    seq, before = error.seq, error.before
    made = Corrupt(error.problem, target=error.target, hint=hint, seq=seq, before=before)
    made.damages, made.beside = error.damages, error.beside
    return made


def _last_header(backend: Backend, info: AgentInfo) -> bytes:
    (last,) = backend.read(info.no, 0, info.seq, newest_first=True, limit=1)
    return last.header


def _check_listed(reader: LogReader, info: AgentInfo) -> None:
    """Checks, where the list of agents may be damaged, that an agent's row agrees with its log.

    Raises:
        Corrupt: it does not, or that cannot be told.
    """
    last = next(reader.commits(newest_first=True, damaged_too=True), None)
    if last is None or last.damaged:
        good = any(not commit.damaged for commit in reader.commits(damaged_too=True))
        says = info.deleted if good else None
    else:
        says = any(map(deletes, last.typed))
    if says is not info.deleted:
        raise Corrupt(
            "the list of agents may have it under another name, or as deleted or not: its log does "
            "not say so",
            target=reader.target(),
            hint=LEFT,
        )
