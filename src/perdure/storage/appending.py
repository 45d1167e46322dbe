"""A commit on its way into a backend, and the backend's answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from perdure.core.format.chain import START, LogTail
from perdure.core.format.records import Record
from perdure.model import Checkpoint, Message, RunInfo


class StoredSnapshot(Struct, frozen=True):
    """A state as bytes: a manifest, and the leaves that it is made of, shared between snapshots.

    Attributes:
        leaf_ids: all its leaves, in the manifest's order.
        leaves: their bytes; on the way in, only those that are new.
    """

    manifest: bytes
    leaf_ids: Sequence[int] = ()
    leaves: Mapping[int, bytes] = field(default_factory=dict)


class Ref(Struct, frozen=True):
    """A name of an agent: a branch or a checkpoint. Both share one namespace; names stay taken.

    Attributes:
        seq: head of the branch, or the commit of the checkpoint.
        epoch: the highest epoch ever given for the branch.
        held: the epoch that may append now; None while nobody holds a lease.
        holder: the executor of that epoch.
    """

    name: str
    kind: Literal["branch", "checkpoint"]
    seq: int
    deleted: bool = False
    epoch: int = 0
    held: int | None = None
    holder: str | None = None
    checkpoint: Checkpoint | None = None


class Riders(Struct, frozen=True):
    """Everything that happens along with a commit, or not at all (I2): one form, from the effect
    that asks for it to the backend.

    Attributes:
        records: entries of a run's journal, or other records; they are in the payload.
        holder: the executor for which the commit takes the branch's lease, which nobody may hold;
            its `epoch` is then the next one. Not with a new branch. The commit is refused as
            ``unread`` if there is a "cancel" for one of `runs`, or a "start" that is not among
            `consumed`.
        key: an idempotency key that must be new to the agent, and a digest of what was asked.
        checkpoint: a checkpoint to record.
        drop_branch: a branch to delete; its name stays taken.
        delete_agent: ends this incarnation; none of its branches can be appended to again.
        runs: rows of runs to insert or replace.
        consumed: numbers of the messages that it takes out of the inbox, each once.
        sends: messages that are put into inboxes along with it, like by `send`; refused ones are
            left out. If the store is closed to one of them, the commit is refused.
        known: messages that other commits took out, in another store: the inbox knows them from
            then on, under a number of its own, and one of them that waits in it is taken out.
        release: releases the branch's lease.
        sync: durable before it is answered, whatever the store's durability is.
        lazy: it need not be durable before it is answered, also where the store's durability is
            ``sync``: what is lost with it is simply done again.
        purge: with `delete_agent`: from then on `to_purge` lists it.
        read_to: by run that it ends, or makes as a fork: the number of the last signal or answer to
            it that was read before, or 0. The commit is refused as ``unread`` if there is a later
            one, or a "start" or "cancel" that is not among `consumed`.
        fresh: ids of runs that it begins, makes as a fork, or asks for by a "start": refused as
            ``begun`` if one of them has a row, or a "start" that is not among `consumed`.
        going: ids of runs that it sends to: refused as ``ended`` if one of them has ended, or has
            no row and no "start". What is sent to it would be left out.
        drop_head: with `drop_branch`: that branch's head; refused as ``moved`` if it is another.
        starts_read: with `delete_agent`: refused as ``unread`` if there is a "start" to the agent
            that is not among `consumed`.
        log_end: the seq of the log's last commit, on whatever branch, when its writer decided.
            Refused if more commits came: what they say was not read.
        trims: the head of the branch `@retention` as its writer knew it, 0 for none. If it has
            moved, what the commit builds on may be removed: refused as ``trimmed``.
    """

    records: Sequence[Record | Mapping[str, Any]] = ()
    holder: str | None = None
    key: tuple[str, bytes] | None = None
    checkpoint: Checkpoint | None = None
    drop_branch: str | None = None
    delete_agent: bool = False
    runs: Sequence[RunInfo] = ()
    consumed: Sequence[int] = ()
    sends: Sequence[Message] = ()
    known: Sequence[Message] = ()
    release: bool = False
    sync: bool = False
    lazy: bool = False
    purge: bool = False
    read_to: Mapping[str, int] = {}
    fresh: Sequence[str] = ()
    going: Sequence[str] = ()
    drop_head: int | None = None
    starts_read: bool = False
    log_end: int | None = None
    trims: int | None = None


NOTHING = Riders()
_CONDITIONS = {"read_to", "fresh", "going", "drop_head", "starts_read", "log_end", "trims"}

beside = attrgetter(
    *({*Riders.__struct_fields__} - {"records", "sync", "lazy", "purge"} - _CONDITIONS)
)
"""Of riders, all that is to be done beside writing the commit itself."""


def together(parts: Sequence[Riders]) -> Riders:
    """Returns the riders of one commit that combines several. Names, leases and keys come from the
    only one that has any."""
    return replace(
        next((part for part in parts if part.key or part.checkpoint), parts[0]),
        records=[record for part in parts for record in part.records],
        runs=[row for part in parts for row in part.runs],
        consumed=[no for part in parts for no in part.consumed],
        sends=[message for part in parts for message in part.sends],
        fresh=[run for part in parts for run in part.fresh],
        going=[run for part in parts for run in part.going],
        release=any(part.release for part in parts),
        sync=any(part.sync for part in parts),
        lazy=all(part.lazy for part in parts),
    )


class Append(Struct):
    """One commit on its way in, linked to a tail, with everything that must happen along with it.

    Attributes:
        agent: the agent's name; `no` its number, None where this commit creates the incarnation.
        seq, header, payload: the commit. `seq` must be the log's next.
        branch, expected: the branch's head must be at `expected`; None: the branch must be new.
        epoch: the lease under which it is written; None: no lease may be held on the branch.
        riders: what happens along with it.
        snapshot: a snapshot of the state after this commit.
        epoch_min: a minimum for the branch's epoch afterwards, for an imported log (I4).
        behind: the tail that the header was linked to. If another commit is there, the writer
            linked to one that never got in: ``stale`` (I3).
        then: for a commit that creates its agent: commits that follow it (their `no` is None), all
            of which get in along with it, or none. If one of them must be durable before it is
            answered, its own riders say so.
        awaited: True if the submitting thread waits for nothing else, and does nothing meanwhile.
    """

    agent: str
    no: int | None
    incarnation: int
    seq: int
    header: bytes
    payload: bytes
    branch: str
    expected: int | None
    epoch: int | None = None
    riders: Riders = NOTHING
    snapshot: StoredSnapshot | None = None
    epoch_min: int = 0
    behind: LogTail = START
    then: Sequence[Append] = ()
    awaited: bool = False


class Appended(Struct, frozen=True):
    """The commit is in, at the durability asked for. `no`: the agent's number."""

    no: int


class Refused(Struct, frozen=True):
    """Nothing of the commit is in.

    Attributes:
        why: ``stale``: the log's end is not before `seq`, link again; ``moved``: the branch's head
            is elsewhere; ``exists``: agent, branch or name is taken; ``held``: another executor
            holds the branch; ``fenced``: the epoch is not current, or, where the commit takes the
            lease, not the next one; ``gone``: the agent, incarnation or branch is deleted or was
            never there; ``key``: the idempotency key is used, `seq` says where and `asked` for
            what; ``consumed``: a message was taken out by another commit, or ended with its agent;
            ``unread``: a message to a run that it begins or ends was not read before; ``begun``: a
            run that it begins or asks for is there, or is asked for; ``ended``: a run that it sends
            to has ended; ``trimmed``: retention removed something that its writer does not know of;
            ``leaves``: a leaf that its snapshot shares is gone: propose it again without the
            snapshot.
        ref: the branch as it is, where there is one.
    """

    why: Literal[
        "stale",
        "moved",
        "exists",
        "held",
        "fenced",
        "gone",
        "key",
        "consumed",
        "unread",
        "begun",
        "ended",
        "trimmed",
        "leaves",
    ]
    ref: Ref | None = None
    seq: int = 0
    asked: bytes = b""


Outcome = Appended | Refused | Exception


def misplaced(item: Append, ref: Ref | None) -> Refused | None:
    """Returns why a commit cannot move its branch, as that is; None if it can."""
    if ref is None or ref.deleted or ref.kind != "branch":
        return Refused("gone", ref)
    if item.riders.holder is not None:
        if ref.held is not None or ref.epoch + 1 != item.epoch:
            return Refused("fenced" if ref.held is None else "held", ref)
    elif ref.held != item.epoch:
        return Refused("held" if item.epoch is None else "fenced", ref)
    return Refused("moved", ref) if ref.seq != item.expected else None


def undroppable(ref: Ref | None, head: int | None) -> Refused | None:
    """Returns why a branch cannot be deleted, as it is; None if it can. `head`: the expected
    one."""
    if ref is None or ref.deleted or ref.kind != "branch":
        return Refused("gone", ref)
    if ref.held is not None:
        return Refused("held", ref)
    return Refused("moved", ref) if head is not None and ref.seq != head else None
