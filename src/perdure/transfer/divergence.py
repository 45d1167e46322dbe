"""The point where two stores stopped being copies of each other: the first commit that one has
alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from perdure.core.values import codec
from perdure.errors import Conflict, Corrupt
from perdure.model import AgentInfo, Message
from perdure.public_data import PublicData
from perdure.storage.capabilities import Backend
from perdure.transfer.arriving_messages import all_mail, storable
from perdure.transfer.living_agents import living

NAMED_MAX = 5


class Divergence(PublicData, Struct, frozen=True):
    """Commits of a source that a copy does not have.

    Attributes:
        seq: the first of them.
        behind: True if the copy has none at that place, because it was not shipped that far; False
            if it has another.
        commits: the number of such commits.
    """

    agent: str
    incarnation: int
    seq: int
    behind: bool
    commits: int


class DivergedError(Conflict):
    """The logs continued differently; `found` says where. Nothing was written."""

    retry = False

    def __init__(
        self, problem: str, *, target: str, hint: str, found: tuple[Divergence, ...]
    ) -> None:
        super().__init__(problem, target=target, hint=hint)
        self.found = found


def diverged(found: tuple[Divergence, ...], url: str) -> DivergedError:
    """Returns the error for commits that only one of two stores has.

    Args:
        url: the store that lacks them.
    """
    first, *others = found
    names = ", ".join(f"{one.agent!r} from commit {one.seq}" for one in others[:NAMED_MAX])
    if len(others) > NAMED_MAX:
        names += f" and {len(others) - NAMED_MAX} more"
    also = f"; so did {names}" if names else ""
    what = "goes on beyond what is" if first.behind else "went on differently from what is"
    return DivergedError(
        f"{what} in {url}{also}",
        target=f"agent {first.agent!r}, commit {first.seq}",
        hint="one of the two took commits on its own, e.g. an old primary after the other was "
        "promoted. Decide which is right; `perdure export` keeps what the other one has; then "
        "replicate into a new store",
        found=found,
    )


def other_message(source: Backend, copy: Backend) -> Message | None:
    """Returns an unread message of a store whose number is another message's in the copy; None if
    there is none."""
    there = {message.no: message for message in copy.inbox()}
    for message in source.inbox():
        other = there.get(message.no)
        if other is not None and _as_stored(other) != _as_stored(message):
            return message
    return None


def _as_stored(message: Message) -> Message:
    """Returns a message as a copy keeps it, with its value's bytes: NaN does not equal itself."""
    message = storable(message)
    return replace(message, value=codec.encode(message.value))


def own_message(source: Backend, copy: Backend) -> Message | None:
    """Returns an unread message of a store that a copy, of which it is to be one, has never had;
    None if there is none. One to an agent that is deleted there, and not here yet, went with it."""
    unread = source.inbox()
    known = {message.no for message in all_mail(copy)} if unread else set()
    left = (message for message in unread if message.no not in known)
    return next((one for one in left if _life(copy, one) <= _life(source, one)), None)


def _life(store: Backend, message: Message) -> int:
    """Returns the incarnation that would get a message in a store."""
    info = store.agent(message.agent)
    return 1 if info is None else info.incarnation + info.deleted


def diverged_mail(message: Message, url: str) -> DivergedError:
    """Returns the error for a message that only one of two stores has."""
    return DivergedError(
        f"is not what it is, or is not at all, in {url}",
        target=f"{message.kind} {message.name!r} to run {message.run!r}, message {message.no}",
        hint="one of the two took messages on its own, e.g. an old primary after the other was "
        "promoted, or one that was put back from a copy. Decide which is right; then replicate "
        "into a new store",
        found=(),
    )


def compare(source: Backend, copy: Backend) -> Iterator[Divergence]:
    """Yields the differences of all agents whose source has commits that the copy lacks: of those
    that live in one of the two, with deleted ones whose name was used again. Reads a few headers of
    each; who is damaged in one of the stores is left to those who ship it."""
    for info in _living_in_one(source, copy):
        for incarnation in range(1, info.incarnation + 1):
            found = None
            with suppress(Corrupt):
                here = source.agent(info.name, incarnation)
                found = here and first_difference(source, here, copy)
            if found:
                yield found


def _living_in_one(source: Backend, copy: Backend) -> Iterator[AgentInfo]:
    yield from living(source)
    for info in living(copy):
        here = source.agent(info.name)
        if here is None or here.deleted:
            yield info


def first_difference(source: Backend, info: AgentInfo, copy: Backend) -> Divergence | None:
    """Returns where a log of the source leaves that of the copy; None if the copy has all of it."""
    there = copy.agent(info.name, info.incarnation)
    if there is not None and (info.purged or there.purged):
        return _last_difference(source, info, copy, there)
    common = min(info.seq, there.seq) if there is not None else 0
    if there is not None and not _same(source, info, copy, there, common):
        low, high = 0, common  # the same at `low`, another one at `high`
        while high - low > 1:
            middle = (low + high) // 2
            if _same(source, info, copy, there, middle):
                low = middle
            else:
                high = middle
        return Divergence(info.name, info.incarnation, high, False, info.seq - high + 1)
    if common == info.seq:
        return None
    return Divergence(info.name, info.incarnation, common + 1, True, info.seq - common)


def _last_difference(
    source: Backend, info: AgentInfo, copy: Backend, there: AgentInfo
) -> Divergence | None:
    """Compares logs of which one was purged: only the last commit can be compared."""
    if info.seq == there.seq and not _same(source, info, copy, there, info.seq):
        return Divergence(info.name, info.incarnation, info.seq, False, 1)
    if info.seq <= there.seq:
        return None
    behind = not there.purged
    return Divergence(info.name, info.incarnation, there.seq + 1, behind, info.seq - there.seq)


def _same(one: Backend, a: AgentInfo, other: Backend, b: AgentInfo, seq: int) -> bool:
    """Returns True if the logs are the same up to a commit: its header names its predecessor's
    id."""
    if not seq:
        return True
    here, there = one.read(a.no, seq, seq), other.read(b.no, seq, seq)
    return bool(here and there) and here[0].header == there[0].header
