"""Words of retention that a copy gets of its own, for the beginning of a log.

The word that says what was removed is behind what was removed, and often far behind. A copy that
ends before it, at a moment or at damage, would have payloads missing that its log does not say are
removed: damage, for whoever verifies or imports it (I7).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from perdure.core.format import chain
from perdure.model import MAIN, AgentInfo
from perdure.retention.trimming import draft_of
from perdure.storage.appending import Append
from perdure.storage.capabilities import Backend
from perdure.storage.log.gone import Gone
from perdure.storage.log.reader import LogReader
from perdure.storage.retention import RETENTION, Trim
from perdure.transfer.shipping_order import Load

WHO = "copy"
"""Stands in the place of an executor in these words."""

NO_STATE = "nothing of it comes, because retention removed the state before that"


def own_words(target: Backend, agents: Iterable[str]) -> list[Append]:
    """Returns the commits by which incomplete copies of agents say what retention had removed of
    them; none for agents that are not there, or whose logs say it."""
    found = (target.agent(name) for name in agents if name)
    return [word for info in found if info is not None for word in _own_word(target, info)]


def _own_word(target: Backend, info: AgentInfo) -> Iterator[Append]:
    if info.deleted or info.purged:
        return
    reader = LogReader(target, info)
    (row,) = target.read(info.no, 0, info.seq, newest_first=True, limit=1)
    gone = reader.gone(row.seq)
    if not is_said(reader, gone, row.seq):
        tail = chain.tail_of(row.header, reader.target(row.seq))
        word = gone.word(0, tail.seq, reader.last_word())
        yield saying(target, reader, word, tail)


def is_said(reader: LogReader, gone: Gone, last: int) -> bool:
    """True if the log says up to a commit, in words that can be read, what is gone up to there."""
    said = reader.trim(last)
    return gone.is_said(said if said is None or not said.found else None)


def saying(target: Backend, reader: LogReader, word: Trim, tail: chain.LogTail) -> Append:
    """Returns the commit that says a word of retention behind the end of a log in a copy."""
    header, payload = linked(reader, word, tail, target.now())
    place = reader.name, None, reader.incarnation, tail.seq + 1
    return Append(*place, header, payload, RETENTION, word.previous or None, behind=tail)


def linked(reader: LogReader, word: Trim, tail: chain.LogTail, now: int) -> tuple[bytes, bytes]:
    """Returns header and payload of that commit; `now` as of `chain.link`."""
    draft = draft_of(word, reader, reader.commit(1), WHO)
    header, _ = chain.link(draft, tail, now)
    return header, draft.payload.data


def has_no_state(reader: LogReader, gone: Gone, last: int) -> bool:
    """True if retention removed the state that main had after a commit: a copy up to there would be
    an agent without a state."""
    if not gone.states:
        return False
    before = reader.commits(1, last, newest_first=True)
    head = next((commit.seq for commit in before if commit.branch == MAIN), 0)
    return head in gone.states


def stateless(source: Backend, load: Load, aside: Collection[str]) -> Iterator[tuple[str, int]]:
    """Yields the incarnations, of agents that are set aside, whose state is gone where a shipment
    leaves them; with nothing of it they are as they were, or not there."""
    for agent in sorted(load.agents().intersection(aside)):
        mine = [commit for commit, _ in load.commits if commit.agent == agent]
        last = mine[-1] if mine else None
        info = last and source.agent(agent, last.incarnation)
        if not last or not info or not any(commit.trimmed for commit in mine):
            continue
        reader = LogReader(source, info)
        if has_no_state(reader, reader.gone(last.seq), last.seq):
            yield agent, last.incarnation
