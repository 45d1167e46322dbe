"""Exceptions that came between two instructions, and what they left behind once."""

from __future__ import annotations

import ast
import asyncio
import gc
import itertools
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.agents import Agent
from perdure.aio import AsyncStore
from perdure.aio.loops import HandleTurn
from perdure.engine.execution.current_run import counted, driving
from perdure.state.edit_block import Block
from perdure.storage.appending import Append, Outcome
from perdure.storage.memory.backend import MemoryBackend
from perdure.storage.sqlite.connection import checksum_vfs
from perdure.system.locks import WithinItselfError
from tests.faults.checking import State, check_agent, check_usable
from tests.faults.injecting import KINDS, Handled, Helper, Injector, count, inject
from tests.source_tree import SOURCE


def _grow(draft: State) -> None:
    draft.n += 1
    draft.items.append(f"item {draft.n}")


def _two_handles(folder: Path, name: str) -> tuple[Agent[State], Agent[State]]:
    store = perdure.open("memory://" + str(folder).replace("/", "-"))
    agent = store.agent(name, State, initial=State())
    agent.update(_grow)
    return agent, store.agent(name, State)


@pytest.mark.parametrize("move", [Agent.refresh, Agent.follow])
def test_i6_an_exception_while_a_handle_moves_on_puts_no_commit_in_twice(
    tmp_path: Path, move: Callable[[Agent[State]], object]
) -> None:
    """Ctrl-C came when a handle had applied another's commit and not yet noted its seq. The next
    refresh applied it once more, `drift()` said nothing, and the edit after that wrote ops that did
    not fit: the agent was `Corrupt` for everybody, for good."""
    numbers = itertools.count()

    def scene() -> Agent[State]:
        agent, other = _two_handles(tmp_path, f"moves-{next(numbers)}")
        other.update(_grow)
        return agent

    agent = scene()
    points = count(lambda: move(agent))
    wheres = set()
    for at in range(1, points, 13):
        agent = scene()
        wheres.add(inject(lambda: move(agent), at, KINDS[at % len(KINDS)]).where.split(" ")[-1])  # noqa: B023
        check_agent(agent)
        agent.refresh()
        agent.update(_grow)
        assert agent.state.items == ["item 1", "item 2", "item 3"]
        agent.verify()
    assert "BranchState.advance" in wheres


class _Interrupted(MemoryBackend):
    """Its leader is interrupted at some moment of a commit."""

    def __init__(self) -> None:
        super().__init__()
        self.interrupt: BaseException | None = None

    def append(self, batch: Any) -> list[Outcome]:
        outcomes = super().append(batch)
        if (interrupt := self.interrupt) is not None:
            self.interrupt = None
            raise interrupt
        return outcomes


def test_i8_an_exception_while_a_thread_leads_leaves_a_committer_that_goes_on(
    tmp_path: Path,
) -> None:
    """A soft time limit's exception came while an edit committed. The committer stayed busy with
    nobody leading: every later commit on that open store, by any thread, waited for ever."""
    helper, numbers = Helper(), itertools.count()
    store = perdure.open("memory://")

    def scene() -> tuple[Agent[State], Callable[[], object]]:
        agent = store.agent(f"leads-{next(numbers)}", State, initial=State())
        agent.update(_grow)
        return agent, lambda: agent.update(_grow)

    points = count(scene()[1])
    wheres = set()
    for at in range(1, points, 11):
        agent, call = scene()
        wheres.add(inject(call, at, KINDS[at % len(KINDS)]).where.split(" ")[-1])
        helper.call(lambda: agent.update(_grow))  # noqa: B023
        check_usable(store, agent, helper)
    assert {"Committer.submit", "Committer._commit"} <= wheres


def test_i1_who_leads_and_is_interrupted_hurts_no_follower() -> None:
    """What the others of the batch asked for is done once, whatever becomes of who led."""
    backend = _Interrupted()
    store = perdure.Store(backend)
    agents = [store.agent(f"a{number}", State, initial=State()) for number in range(4)]
    for agent in agents:
        agent.update(_grow)
    for interrupt in (KeyboardInterrupt(), ValueError("a handler's"), MemoryError()):
        before = [agent.refresh().n for agent in agents]
        backend.interrupt = interrupt
        raised: list[BaseException] = []

        def work(agent: Agent[State], raised: list[BaseException] = raised) -> None:
            try:
                agent.update(_grow)
            except BaseException as error:
                raised.append(error)

        threads = [threading.Thread(target=work, args=(agent,)) for agent in agents]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert not any(thread.is_alive() for thread in threads)
        assert raised == [interrupt]
        assert [agent.refresh().n for agent in agents] == [n + 1 for n in before]
        for agent in agents:
            agent.verify()


def test_a_handler_that_uses_the_store_that_its_thread_commits_to_is_refused() -> None:
    """A signal's handler wrote to the store while its own thread led: both waited for ever. Then it
    was told of a conflict, which it met a hundred times more, for half a minute."""

    class Handled(MemoryBackend):
        handler: Callable[[], object] | None = None

        def append(self, batch: Sequence[Append]) -> list[Outcome]:
            if (handler := self.handler) is not None:
                self.handler = None
                handler()
            return super().append(batch)

    backend = Handled()
    store = perdure.Store(backend)
    agent, other = (store.agent(name, State, initial=State()) for name in ("one", "two"))
    other.update(_grow)
    refused: list[WithinItselfError] = []

    def handler() -> None:
        with pytest.raises(WithinItselfError, match="called from within itself") as error:
            other.update(_grow)
        refused.append(error.value)

    backend.handler = handler
    agent.update(_grow)
    assert refused and agent.state.n == 1
    assert other.update(_grow) and other.state.n == 2


@pytest.mark.parametrize("what", ["look", "read", "write"])
def test_a_handler_within_a_commit_in_memory_does_not_take_that_back(what: str) -> None:
    """A signal's handler only looked, in the middle of a commit of its own thread: it took that for
    an interrupted one, and took it back. The commit was acknowledged, and gone."""

    class Handled(MemoryBackend):
        handler: Callable[[], object] | None = None

        def _write(self, *commit: Any) -> None:
            super()._write(*commit)
            if (handler := self.handler) is not None:
                self.handler = None
                with pytest.raises(WithinItselfError, match="called from within itself"):
                    handler()

    backend = Handled()
    store = perdure.Store(backend)
    agent, other = (store.agent(name, State, initial=State()) for name in ("one", "two"))
    agent.update(_grow)
    other.update(_grow)
    handlers: dict[str, Callable[[], object]]
    handlers = {"look": store.agents, "read": other.refresh, "write": lambda: other.update(_grow)}
    backend.handler = handlers[what]
    agent.update(_grow)
    assert backend.handler is None
    for name, n in (("one", 2), ("two", 1)):
        assert store.agent(name, State).state.n == n
        store.agent(name, State).verify()


@pytest.mark.parametrize("move", ["rollback", "adopt"])
def test_a_move_that_is_interrupted_behind_its_commit_is_shown(move: str) -> None:
    """Ctrl-C came when a rollback was in the log. The handle went on to show the state from
    before."""

    class Interrupted(MemoryBackend):
        interrupts = False

        def append(self, batch: Sequence[Append]) -> list[Outcome]:
            outcomes = super().append(batch)
            if self.interrupts:
                raise KeyboardInterrupt
            return outcomes

    backend = Interrupted()
    agent = perdure.Store(backend).agent("a", State, initial=State())
    agent.fork("side")
    agent.update(_grow)
    backend.interrupts = True
    with pytest.raises(KeyboardInterrupt):
        agent.rollback(1) if move == "rollback" else agent.adopt("side")
    backend.interrupts = False
    assert agent.seq == 4 and agent.state.n == 0


def _edited(agent: Agent[State], other: Agent[State]) -> None:
    with agent.edit() as draft:
        _grow(draft)


def _moved_on(agent: Agent[State], other: Agent[State]) -> None:
    other.update(_grow)
    agent.refresh()


def _looked(agent: Agent[State]) -> None:
    assert agent.state.n == len(agent.state.items)


@pytest.mark.parametrize(
    "handler",
    [Agent.follow, Agent.drift, Agent.undo, lambda agent: agent.update(_grow), _looked],
    ids=["follow", "drift", "undo", "update", "look"],
)
@pytest.mark.parametrize("call", [_edited, _moved_on])
def test_i6_a_handler_moves_no_handle_that_a_call_of_its_thread_is_about_to_move(
    tmp_path: Path,
    call: Callable[[Agent[State], Agent[State]], None],
    handler: Callable[[Agent[State]], object],
) -> None:
    """A signal's handler asked a handle where it is, which its thread was just committing with.
    That took the edit for an interrupted one, and read the handle's state anew. The snapshot that
    the edit then stored was not of its commit: each new handle was without that, and wrote on."""
    policy = perdure.SnapshotPolicy(every_commits=1)
    store = perdure.open("memory://" + str(tmp_path).replace("/", "-"), snapshots=policy)
    numbers, refused = itertools.count(), 0

    def scene() -> tuple[Agent[State], Agent[State]]:
        name = f"handled-{next(numbers)}"
        agent = store.agent(name, State, initial=State())
        agent.update(_grow)
        agent.update(_grow)
        return agent, store.agent(name, State)

    def handle() -> None:
        nonlocal refused
        try:
            handler(agent)
        except (WithinItselfError, perdure.Conflict):
            refused += 1

    agent, other = scene()
    with Injector() as points:
        call(agent, other)
    for at in range(1, points.count, max(points.count // 120, 1)):
        agent, other = scene()
        before = agent.seq
        with Handled(at, handle, points.calls):
            call(agent, other)
        assert agent.seq > before
        _looked(agent)
        fresh = store.agent(agent.id, State)
        assert fresh.state == agent.refresh(), at
        fresh.verify()
        check_agent(agent)
    assert refused


def test_i8_an_exception_where_a_run_begins_or_ends_leaves_no_run_behind_it() -> None:
    """Ctrl-C came between the instruction that counted a run in and the one that would count it
    out. From then on the process took itself for driving a run, and refused every tool that was
    called outside of one, for good: "called where no run can be seen"."""

    def scene() -> None:
        with counted():
            assert driving()

    for at in range(1, count(scene) + 1):
        inject(scene, at, KINDS[at % len(KINDS)])
        gc.collect()
        assert not driving(), at


@pytest.fixture
def twice(monkeypatch: pytest.MonkeyPatch) -> type[KeyboardInterrupt]:
    """The next edit is interrupted where it has just begun, and again before that is undone."""
    begin, abandon = Block.begin, Block.abandon

    def begun(block: Block[Any], *, reads: bool = True) -> None:
        begin(block, reads=reads)
        monkeypatch.setattr(Block, "begin", begin)
        raise KeyboardInterrupt

    def abandoned(block: Block[Any]) -> None:
        monkeypatch.setattr(Block, "abandon", abandon)
        raise KeyboardInterrupt

    monkeypatch.setattr(Block, "begin", begun)
    monkeypatch.setattr(Block, "abandon", abandoned)
    return KeyboardInterrupt


def test_an_edit_that_is_interrupted_twice_is_not_open_for_ever(
    twice: type[KeyboardInterrupt],
) -> None:
    """Ctrl-C came where a block of `edit` began, and again while that was put right. The handle
    refused every later edit: "not inside an open edit"."""
    with perdure.open("memory://") as store:
        agent = store.agent("a", State, initial=State())
        with pytest.raises(twice):
            agent.update(_grow)
        agent.update(_grow)
        assert agent.state.n == 1
        agent.verify()


def test_an_edit_of_a_task_that_is_interrupted_twice_is_not_open_for_ever(
    twice: type[KeyboardInterrupt], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above, in a task; and the turn of the handle was not given back either."""
    give_back = HandleTurn.give_back

    def kept(turn: HandleTurn, span: object) -> None:
        monkeypatch.setattr(HandleTurn, "give_back", give_back)
        raise MemoryError("injected")

    with perdure.open("memory://") as store:

        async def main() -> int:
            agent = await AsyncStore(store).agent("a", State, initial=State())

            async def interrupted() -> None:
                monkeypatch.setattr(HandleTurn, "give_back", kept)
                with pytest.raises(MemoryError):
                    await agent.update(_grow)

            await asyncio.create_task(interrupted())
            await asyncio.wait_for(agent.update(_grow), 20.0)
            return agent.state.n

        assert asyncio.run(main()) == 1
        store.agent("a", State).verify()


PLAIN = {
    "system/flag.py": "nobody waits for it to be given back",
    "system/locks.py": "a waiter's own gate; and one that is not waited for longer than a second",
    "engine/execution/run_edits.py": "of one execution, which ends with the exception",
    "integrations/langgraph/threads/task_writes.py": "a waiter's own gate",
    "storage/log/proposals.py": "a waiter's own gate",
    "storage/sqlite/housekeeper.py": "of its own thread, and of hooks around a fork",
}


def test_locks_of_pythons_own_stand_where_none_can_be_left_behind() -> None:
    """Ctrl-C came where a connection was opened, between a plain lock's taking and its block: no
    store could be opened any more in that process, and nothing said why. So was LangGraph's store
    left behind, for all of its threads."""
    files = [
        path.relative_to(SOURCE / "perdure").as_posix() for path in _holding("threading.Lock()")
    ]
    assert sorted(files) == sorted(PLAIN)


CONDITIONS = re.compile(
    r"threading\.(?:Event|Condition|(?:Bounded)?Semaphore|Barrier|Timer)\b"
    r"|from threading import .*[A-Z]|queue\.(?:Lifo|Priority)?Queue\b|from queue import .*\bQueue"
)
NAMED = {
    "system/flag.py": "what it is used in place of",
    "replication.py": "its caller's may be one",
}


def test_nothing_of_pythons_own_that_has_a_condition_is_used() -> None:
    """Ctrl-C came as a run began to wait for its commit, by a `threading.Event`, whose lock it left
    taken: of 30,000 interrupted waits, 140 did. Who set the event, as the committer's thread,
    waited for that lock for ever, and with it each later commit of the store. So did who closed a
    store a second time."""
    files = {
        path.relative_to(SOURCE / "perdure").as_posix()
        for path in _holding("thread") + _holding("queue")
        if CONDITIONS.search(path.read_text())
    }
    assert files == {*NAMED}


LOCK = re.compile(r"(?m)^ *(?:self\.)?(\w+)(?:: [^=]+)? = (?:Reentrant)?Lock\(\)")


def test_no_lock_is_taken_in_code_that_cannot_be_asked_whether_it_is_over() -> None:
    """SystemExit came twice as a run's map ended, the second time where a lock was given back, in a
    generator's block. Of a generator's call nobody can tell whether it is over: whoever
    came next waited for the lock for ever."""
    library = [path for path in _holding("") if path.name != "locks.py"]
    names = {name for path in library for name in LOCK.findall(path.read_text())}
    assert len(names) > 3
    block_of_one = re.compile(rf"with (?:[\w.]*\.)?(?:{'|'.join(names)})\b")
    found = [
        f"{path.name}:{block.lineno}"
        for path in library
        if block_of_one.search(path.read_text())
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for block in _blocks_that_rest(function)
        for item in block.items
        if ast.unparse(item.context_expr).rpartition(".")[2] in names
    ]
    assert not found


def _blocks_that_rest(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.With]:
    """The ``with`` blocks of a generator or a coroutine itself; none of any other function."""
    within: list[ast.AST] = []
    todo: list[ast.AST] = [*function.body]
    while todo:
        node = todo.pop()
        within.append(node)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            todo += ast.iter_child_nodes(node)
    rests = isinstance(function, ast.AsyncFunctionDef) or any(
        isinstance(node, ast.Yield | ast.YieldFrom) for node in within
    )
    return [node for node in within if rests and isinstance(node, ast.With)]


def _holding(words: str) -> list[Path]:
    library = (path for path in (SOURCE / "perdure").rglob("*.py") if "testing" not in path.parts)
    return [path for path in library if words in path.read_text()]


def test_opening_a_connection_that_is_interrupted_leaves_no_lock_behind() -> None:
    for at in range(1, count(checksum_vfs) + 1):
        inject(checksum_vfs, at, KINDS[at % len(KINDS)])
        Helper().call(checksum_vfs, 20.0)
