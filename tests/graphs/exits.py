"""Programs of tasks by chance in which something ends the program, or is cancelled by nobody: does
the run end when it is asked for again, and is everything done once?

Each is played in a process of its own, asked for again there whenever it was left, then killed, and
gone on with in another one.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import random
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import perdure
from perdure.engine.journal.leaving import LeftError
from perdure.testing import replay

Node = tuple[str, int, Any]

LEAVES = ("step", "step", "tool", "tool", "sync", "plain", "nested")
NESTS = (
    "row",
    "row",
    "gather",
    "gather",
    "gather all",
    "group",
    "group",
    "task",
    "wait for",
    "shield",
    "timeout",
    "catches",
    "cleans up",
    "loses",
    "queue",
)
OF_SEVERAL = ("row", "gather", "gather all", "group")
ENDS = ("SystemExit", "Stop", "KeyboardInterrupt", "CancelledError", "kill")
TRIES_MAX = 16
HANGS_S = 45.0


class Stop(BaseException):
    """Of somebody's own: no error, and no end of the program."""


_names: dict[str, type[BaseException]] = {
    "SystemExit": SystemExit,
    "Stop": Stop,
    "KeyboardInterrupt": KeyboardInterrupt,
    "CancelledError": asyncio.CancelledError,
}


def program(seed: int, depth: int = 3) -> tuple[Node, dict[int, str]]:
    """By a seed: what is played, and what is raised in which of its leaves."""
    chance, numbers = random.Random(seed), iter(range(1, 10_000))
    leaves: list[int] = []

    def node(left: int) -> Node:
        number = next(numbers)
        kind = chance.choice(LEAVES if left == 0 or chance.random() < 0.2 else NESTS)
        if kind in OF_SEVERAL:
            return kind, number, [node(left - 1) for _ in range(chance.randint(2, 3))]
        if kind in NESTS:
            return kind, number, [node(left - 1)]
        leaves.append(number)
        return kind, number, chance.randrange(4)

    whole: Node = ("row", 0, [node(depth), node(depth - 1), node(0)])
    spots = chance.sample(leaves, min(len(leaves), chance.randint(1, 3)))
    return whole, {number: chance.choice(ENDS) for number in spots}


class Scene:
    """One program, in a folder: what happens is noted in a file there, which outlives processes."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.whole, self._spots = program(seed)
        self._unasked: list[tuple[str]] = []
        """What comes once, and from no call: to go on from that is not what the function does."""
        self._folder = folder
        self._notes = os.open(folder / "notes", os.O_CREAT | os.O_APPEND | os.O_WRONLY)

        async def play(run: perdure.AsyncRun[Any]) -> str:
            self._run = run
            return str(await self._play(self.whole))

        self.function = perdure.agent(dict, name="scene")(play)

    def note(self, what: str) -> None:
        os.write(self._notes, f"{what}\n".encode())

    @property
    def notes(self) -> list[str]:
        return (self._folder / "notes").read_text().splitlines()

    def spot(self, number: int) -> None:
        """Where a leaf may end: what ends the program does so once, the rest each time."""
        end = self._spots.get(number)
        if end is None or (end != "CancelledError" and f"ended {number}" in self.notes):
            return
        self.note(f"ended {number}")
        if end == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise _names[end](f"at {number}")

    async def _play(self, node: Node) -> Any:
        kind, number, more = node
        found = await getattr(self, "_" + kind.replace(" ", "_"))(number, more)
        if kind == "tool":
            self.note(f"heard {number}")
        return found

    # -- leaves --------------------------------------------------------------------------------

    async def _step(self, number: int, delay: int) -> int:
        return await _step(self, number, delay)

    async def _tool(self, number: int, delay: int) -> int:
        return await _tool(self, number, delay)

    async def _sync(self, number: int, delay: int) -> int:
        found: int = await self._run.call(_sync, self, number)
        return found

    async def _plain(self, number: int, delay: int) -> int:
        if delay:
            await _step(self, -number, delay)
        if self._spots.get(number) != "CancelledError":
            self._unasked.append((f"at {number}",))
        self.spot(number)
        return number

    async def _nested(self, number: int, delay: int) -> int:
        return await _nested(self, number, delay)

    # -- of parts ------------------------------------------------------------------------------

    async def _row(self, number: int, parts: list[Node]) -> Any:
        return [await self._play(part) for part in parts]

    async def _gather(self, number: int, parts: list[Node]) -> Any:
        return await asyncio.gather(*(self._play(part) for part in parts))

    async def _gather_all(self, number: int, parts: list[Node]) -> Any:
        calls = (self._play(part) for part in parts)
        found = await asyncio.gather(*calls, return_exceptions=True)
        return [one if not isinstance(one, BaseException) else repr(one) for one in found]

    async def _group(self, number: int, parts: list[Node]) -> Any:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._play(part)) for part in parts]
        return [repr(task.exception()) if not task.cancelled() else "gone" for task in tasks]

    async def _task(self, number: int, parts: list[Node]) -> Any:
        return await asyncio.create_task(self._play(parts[0]))

    async def _wait_for(self, number: int, parts: list[Node]) -> Any:
        return await asyncio.wait_for(self._play(parts[0]), 30)

    async def _shield(self, number: int, parts: list[Node]) -> Any:
        return await asyncio.shield(self._play(parts[0]))

    async def _timeout(self, number: int, parts: list[Node]) -> Any:
        async with asyncio.timeout(30):
            return await self._play(parts[0])

    async def _catches(self, number: int, parts: list[Node]) -> Any:
        try:
            return await self._play(parts[0])
        except BaseException as error:  # as a framework might; then it goes on
            if error.args in self._unasked:
                raise
            return [repr(error), await _step(self, -number, 1)]

    async def _cleans_up(self, number: int, parts: list[Node]) -> Any:
        try:
            return await self._play(parts[0])
        finally:
            error = sys.exc_info()[1]
            if error is None or error.args not in self._unasked:
                await _step(self, -number, 1)

    async def _loses(self, number: int, parts: list[Node]) -> Any:
        task = asyncio.create_task(self._play(parts[0]))
        await _step(self, -number, 1)
        await asyncio.wait([task])
        return repr(task.exception()) if not task.cancelled() else "gone"

    async def _queue(self, number: int, parts: list[Node]) -> Any:
        queue: asyncio.Queue[Any] = asyncio.Queue()

        async def put() -> None:
            try:
                queue.put_nowait(await self._play(parts[0]))
            except (Exception, asyncio.CancelledError) as error:
                queue.put_nowait(repr(error))

        task = asyncio.create_task(put())
        found = await queue.get()  # nobody awaits the task
        await asyncio.wait([task])
        return found


def _told(scene: Scene, number: int, *more: Any) -> list[Any]:
    return [number]


@perdure.step(identity=_told)
async def _step(scene: Scene, number: int, delay: int) -> int:
    await asyncio.sleep(delay / 1000)
    scene.spot(number)
    return number


@perdure.tool(on_crash="retry", identity=_told)
async def _tool(scene: Scene, number: int, delay: int) -> int:
    await asyncio.sleep(delay / 1000)
    scene.note(f"done {number} {perdure.idempotency_key()}")
    scene.spot(number)
    return number


@perdure.step(identity=_told)
def _sync(scene: Scene, number: int) -> int:
    scene.spot(number)
    return number


@perdure.step(identity=_told)
async def _nested(scene: Scene, number: int, delay: int) -> int:
    """A step with tasks of its own."""

    async def inner(left: int) -> None:
        if not left:
            await asyncio.sleep(delay / 1000)
            scene.spot(number)
        else:
            async with asyncio.TaskGroup() as group:
                group.create_task(inner(left - 1))

    await asyncio.gather(inner(1), inner(0))
    return number


# -- processes -------------------------------------------------------------------------------------


def _live(scene: Scene, folder: Path) -> None:
    """Ask for the run until it has ended; killed where a spot says so."""

    async def life() -> Any:
        async with perdure.open_async(folder / "a.db", durability="os") as store:
            return await store.run(scene.function, "a")

    for _ in range(TRIES_MAX):
        try:
            end = f"result {asyncio.run(life())}"
        except (SystemExit, KeyboardInterrupt, Stop, LeftError) as error:
            scene.note(f"left by {type(error).__name__}")
            continue
        except BaseException as error:
            if isinstance(error, BaseExceptionGroup) and error.subgroup(Stop) is not None:
                scene.note("left by a group")
                continue
            end = f"error {type(error).__name__} {' '.join(str(error).split())}"
        scene.note(f"end {end}")
        return
    scene.note("never")


def _in_process(work: Callable[[], None], said: Path) -> int:
    """In a child; returns its exit code. It is ended, with its stacks on stderr, if it hangs."""
    child = os.fork()
    if child == 0:
        try:
            os.dup2(os.open(said, os.O_CREAT | os.O_APPEND | os.O_WRONLY), 2)
            # Not `dump_traceback_later`: forked beside the parent's, it waits for a thread that is
            # not here.
            faulthandler.register(signal.SIGALRM, chain=True)
            signal.setitimer(signal.ITIMER_REAL, HANGS_S)
            work()
            os._exit(0)
        finally:
            os._exit(3)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def try_program(seed: int) -> None:
    """Play one program to its end, over as many processes as it takes.

    Raises:
        AssertionError: it did not end, or something was done twice.
    """
    quick = "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else None
    with tempfile.TemporaryDirectory(prefix="perdure-exits-", dir=quick) as name:
        folder = Path(name)
        scene, said = Scene(seed, folder), folder / "said"
        code = kills = 0
        while kills < TRIES_MAX:
            code = _in_process(lambda: _live(scene, folder), said)
            if code != -signal.SIGKILL:
                break
            kills += 1
        notes = scene.notes
        assert code == 0, f"exit code {code}: {notes} {said.read_text()[-6000:]}"
        assert notes[-1].startswith("end "), notes
        ended = [note for note in notes if note.startswith("end ")]
        good = ("end result", "end error RunFailed", "end error BaseExceptionGroup")
        assert ended[-1].startswith((*good, "end error ExceptionGroup")), (ended, notes)
        _check_done(notes)
        with perdure.open(folder / "a.db") as store:
            replay(store, scene.function, "a/scene/main").check()


def _check_done(notes: list[str]) -> None:
    keys: dict[str, set[str]] = {}
    heard: set[str] = set()
    for note in notes:
        what, _, more = note.partition(" ")
        if what == "heard":
            heard.add(more)
        elif what == "done":
            number, _, key = more.partition(" ")
            assert number not in heard, f"done again: {note} of {notes}"
            keys.setdefault(number, set()).add(key)
    assert all(len(each) == 1 for each in keys.values()), keys
