"""What a worker knows of the orders that wait: as if it read all of them at each look.

A mail loop asked for 2,000 runs on one ticket. A worker that had room for more read them all after
each run, whether there was one of another ticket: forty seconds, and a quarter of an hour for
10,000. So it keeps what it has read, while others begin orders, too, and more come.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.engine.dispatch import pending_orders
from perdure.engine.dispatch.pending_orders import PendingOrders, line_of
from perdure.engine.execution.wakeups import POLL_S
from perdure.model import Message


def name_of(message: Message) -> str:
    """Of the line that it stands in: its agent, or a branch of that, ``a@b``."""
    agent, branch = line_of(message)
    return agent if branch == "main" else f"{agent}@{branch}"


class Inbox:
    """Of a store. Its clock stands still, but when somebody sets it."""

    def __init__(self) -> None:
        self.messages: dict[int, Message] = {}
        self.no = 0
        self.read = 0
        self.now = 0.0

    def put(self, name: str, kind: str, no: int = 0) -> None:
        self.no = max(self.no + 1, no)
        no = no or self.no
        agent, _, branch = name.partition("@")
        value = {"queue": kind, "branch": branch} if branch else {"queue": kind}
        self.messages[no] = Message(f"{agent}/{no}", agent, "start", "f", "", value, no=no)

    def inbox(
        self,
        run: str | None = None,
        *,
        limit: int,
        after: int = 0,
        agent: str | None = None,
        kind: str,
    ) -> Any:
        found = [
            message
            for no, message in sorted(self.messages.items())
            if no > after and run in (None, message.run) and agent in (None, message.agent)
        ]
        self.read += len(found[:limit])
        return found[:limit]

    def first(self, taken: set[str]) -> list[Message]:
        """What a look at all of them finds."""
        found: dict[str, Message] = {}
        for _, message in sorted(self.messages.items()):
            if message.value["queue"] == "ours":
                found.setdefault(name_of(message), message)
        return [message for name, message in found.items() if name not in taken]


@pytest.fixture
def inbox(monkeypatch: pytest.MonkeyPatch) -> Inbox:
    return _inbox(monkeypatch)


def _inbox(monkeypatch: pytest.MonkeyPatch) -> Inbox:
    inbox = Inbox()
    clock = SimpleNamespace(monotonic=lambda: inbox.now)
    monkeypatch.setattr("perdure.engine.dispatch.pending_orders.time", clock)
    return inbox


def _asked(inbox: Any) -> PendingOrders:
    return PendingOrders(inbox, lambda message: message.value["queue"] == "ours")


def look(known: PendingOrders, inbox: Inbox, taken: set[str], room: int) -> list[Message]:
    """As a worker does: what is not there any more is passed over."""
    found: list[Message] = []

    def is_taken(run: str, agent: str, branch: str) -> bool:
        return (agent if branch == "main" else f"{agent}@{branch}") in taken

    for message in known.first_of_each(is_taken):
        if message.no not in inbox.messages:
            known.is_gone(line_of(message), message.no)
            continue
        found.append(message)
        if len(found) == room:
            break
    return found


acts = st.lists(
    st.tuples(
        st.sampled_from(("put", "put", "put", "look", "look", "begin", "others", "wait")),
        st.sampled_from(("a", "b", "c", "d", "a@x", "b@x", "b@y")),
        st.sampled_from(("ours", "ours", "theirs")),
        st.integers(1, 6),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(acts, st.sampled_from((0, 2, 100)))
def test_it_knows_what_a_look_at_all_of_them_finds(todo: Any, known_max: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pending_orders, "PAGES", (1, 3))
        patch.setattr(pending_orders, "KNOWN_MAX", known_max)
        inbox = _inbox(patch)
        known = _asked(inbox)
        for what, agent, queue, number in todo:
            match what:
                case "put":
                    inbox.put(agent, queue)
                case "look":
                    taken = set(("a", "b@x", "b", "c")[: number % 4])
                    assert look(known, inbox, taken, number) == inbox.first(taken)[:number]
                case "begin":
                    for message in look(known, inbox, set(), number % 3):
                        del inbox.messages[message.no]
                        known.is_gone(line_of(message), message.no)
                case "others":
                    for message in inbox.first(set())[:number]:
                        del inbox.messages[message.no]
                case _:
                    inbox.now += 0.1 * number
        assert look(known, inbox, set(), 99) == inbox.first(set())


def test_each_is_read_once_however_many_wait(inbox: Inbox) -> None:
    for _ in range(2000):
        inbox.put("ticket", "ours")
    inbox.put("another", "ours")
    known = _asked(inbox)
    for _ in range(1000):
        first = look(known, inbox, {"another"}, 8)
        assert len(first) == 1
        del inbox.messages[first[0].no]
        known.is_gone(line_of(first[0]), first[0].no)
    assert inbox.read < 2001 + 1100


def test_one_with_a_lower_number_is_found_soon(inbox: Inbox) -> None:
    """Numbers are given before what has them is committed: a later one may be seen first."""
    inbox.put("a", "ours", no=7)
    known = _asked(inbox)
    assert [message.no for message in look(known, inbox, set(), 8)] == [7]
    inbox.put("b", "ours")
    inbox.messages[3] = Message("c/3", "c", "start", "f", "", {"queue": "ours"}, no=3)
    assert [message.no for message in look(known, inbox, set(), 8)] == [7, 8]
    inbox.now += POLL_S
    assert [message.no for message in look(known, inbox, set(), 8)] == [3, 7, 8]


def test_no_more_are_known_than_so_many(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_orders, "KNOWN_MAX", 10)
    for _ in range(200):
        inbox.put("ticket", "ours")
    inbox.put("another", "ours")
    known = _asked(inbox)
    order: list[str] = []
    while first := look(known, inbox, set(), 1):
        order.append(first[0].agent)
        del inbox.messages[first[0].no]
        known.is_gone(line_of(first[0]), first[0].no)
    assert order == ["ticket"] * 200 + ["another"]


def test_a_long_line_keeps_no_other_agents_orders_from_being_found(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run of an agent waited for a person, and as many others as a worker can know of
    waited behind it: no run of any other agent was begun any more, by any worker."""
    monkeypatch.setattr(pending_orders, "KNOWN_MAX", 10)
    monkeypatch.setattr(pending_orders, "PAGES", (4,))
    for _ in range(50):
        inbox.put("busy", "ours")
    inbox.put("free", "ours")
    known = _asked(inbox)
    for _ in range(2):
        assert [one.agent for one in look(known, inbox, {"busy"}, 8)] == ["free"]
    read = inbox.read
    look(known, inbox, {"busy"}, 8)
    assert inbox.read == read, "it does not read the long line at each look"


def test_a_look_does_not_last_until_all_is_read(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each page takes the time that a look may take: the next look goes on behind it."""
    monkeypatch.setattr(pending_orders, "PAGES", (10,))
    read = inbox.inbox

    def slowly(*args: Any, **wanted: Any) -> Any:
        inbox.now += pending_orders.READ_MAX_S
        return read(*args, **wanted)

    monkeypatch.setattr(inbox, "inbox", slowly)
    for _ in range(25):
        inbox.put("busy", "ours")
    inbox.put("free", "ours")
    known = _asked(inbox)
    looks = [look(known, inbox, {"busy"}, 8) for _ in range(3)]
    assert [len(found) for found in looks] == [0, 0, 1]


def test_a_look_behind_many_orders_of_others_goes_on_to_their_end(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many orders of another queue waited that reading them took longer than a look may. An idle
    worker had forgotten the first half at its next look, read that again, and never got to its own
    order behind them."""
    monkeypatch.setattr(pending_orders, "PAGES", (10,))
    read = inbox.inbox

    def slowly(*args: Any, **wanted: Any) -> Any:
        inbox.now += pending_orders.READ_MAX_S
        return read(*args, **wanted)

    monkeypatch.setattr(inbox, "inbox", slowly)
    for number in range(35):
        inbox.put(f"batch {number}", "theirs")
    inbox.put("free", "ours")
    known = _asked(inbox)
    for _ in range(3):
        assert look(known, inbox, set(), 8) == []
        inbox.now += 1000 * POLL_S  # what was read is remembered for less than that
    assert [one.agent for one in look(known, inbox, set(), 8)] == ["free"]


def test_orders_that_cannot_begin_keep_no_other_agents_from_being_found(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many agents as a worker can know of had an order behind a run that waited for a person. No
    order of any other agent was begun any more, by any worker."""
    monkeypatch.setattr(pending_orders, "AGENTS_MAX", 10)
    blocked = {f"ticket {number}" for number in range(35)}
    for agent in sorted(blocked):
        inbox.put(agent, "ours")
    for _ in range(2):
        inbox.put("free", "ours")
        for agent in sorted(blocked):
            inbox.put(agent, "ours")
    known = _asked(inbox)
    found = look(known, inbox, blocked, 8)
    assert [one.agent for one in found] == ["free"]
    freed = "ticket 0"  # it gave way, and its later orders must not overtake its first
    inbox.put(freed, "ours")
    later = [one.no for one in look(known, inbox, blocked - {freed}, 99) if one.agent == freed]
    assert later in ([], [1])
    inbox.now += 100 * POLL_S
    assert [one.no for one in look(known, inbox, blocked - {freed}, 99)] == [1, found[0].no]
