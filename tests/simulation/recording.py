"""Histories of real threads and processes at work on one agent, as the checker takes them."""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any

import perdure
from perdure.core.format import chain
from perdure.errors import Conflict, NeedsAttention, RunFailed
from perdure.model import Lease
from perdure.storage.appending import Append, Outcome, Ref
from perdure.storage.capabilities import Backend
from perdure.storage.locate import locate
from perdure.storage.shortcuts import AgentAndRun
from perdure.store import Store
from tests.simulation import logs
from tests.simulation.logs import Call

AGENT = "shared"


class Recorder:
    """A backend that notes the calls that the model speaks of, by this machine's one clock."""

    def __init__(self, backend: Backend, who: str) -> None:
        self._backend = backend
        self._who = who
        self.calls: list[Call] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._backend, name)
        mine: dict[str, Callable[..., Any]] = {"look": self._look, "take": self._take}
        ours = mine.get(name)  # these, not every backend has
        return partial(ours, found) if ours is not None else found

    def _note(self, began: int, asked: logs.Asked, answer: Any) -> None:
        self.calls.append(Call(self._who, began, time.monotonic_ns(), asked, answer))

    def append(self, batch: Sequence[Append]) -> list[Outcome]:
        began = time.monotonic_ns()
        outcomes = self._backend.append(batch)
        for item, outcome in zip(batch, outcomes, strict=True):
            self._note(began, logs.put_of(item), logs.answer_of(outcome))
        return outcomes

    def ref(self, no: int, name: str) -> Ref | None:
        began = time.monotonic_ns()
        found = self._backend.ref(no, name)
        self._note(began, logs.Look(name), logs.seen(found))
        return found

    def read(self, no: int, first: int, last: int, **more: Any) -> Any:
        began = time.monotonic_ns()
        found = self._backend.read(no, first, last, **more)
        if more.get("newest_first") and last >= 2**40 and found:
            end = found[0].seq, chain.commit_id(found[0].header)
            self._note(began, logs.End(), end)
        return found

    def lease(self, no: int, branch: str, executor: str | None, **more: Any) -> Lease | Ref:
        began = time.monotonic_ns()
        answer = self._backend.lease(no, branch, executor, **more)
        asked = logs.Take(branch, executor, more.get("over"), more.get("release"))
        self._note(began, asked, logs.seen_after(asked, answer))
        return answer

    def _look(self, look: Callable[..., AgentAndRun], agent: str, run: str) -> AgentAndRun:
        began = time.monotonic_ns()
        found = look(agent, run)
        if found.agent is not None:
            self._note(began, logs.Look(found.branch), logs.seen(found.ref))
        return found

    def _take(
        self,
        take: Callable[..., tuple[Lease | Ref, AgentAndRun | None]],
        no: int,
        branch: str,
        executor: str,
        over: int | None,
        agent: str,
        run: str,
    ) -> tuple[Lease | Ref, AgentAndRun | None]:
        began = time.monotonic_ns()
        answer, found = take(no, branch, executor, over, agent, run)
        asked = logs.Take(branch, executor, over, None)
        self._note(began, asked, logs.seen_after(asked, answer))
        if found is not None:
            self._note(began, logs.Look(found.branch), logs.seen(found.ref))
        return answer, found


@perdure.agent(dict, name="counting")
def counting(run: perdure.Run[dict[str, Any]]) -> int:
    for _ in range(2):
        with run.edit("one more") as draft:
            draft["runs"] = draft.get("runs", 0) + 1
    return int(run.state["runs"])


def _deed(store: Store, random: Random, name: str) -> None:
    agent = store.agent(AGENT)
    deed = random.randrange(4)
    if deed == 0:
        store.options(key=name).run(counting, AGENT)
    elif deed == 1:
        with agent.edit("an edit") as draft:
            draft["edits"] = draft.get("edits", 0) + 1
    elif deed == 2:
        agent.update(lambda draft: draft.setdefault("marks", []).append(name), key=name)
    else:
        agent.refresh()


def use(url: str, seed: int, deeds: int) -> list[Call]:
    """Work on the agent as one opener of the store; the calls that this made."""
    recorder: Any = Recorder(locate(url, durability="os"), str(seed))
    random = Random(seed)
    with Store(recorder) as store:
        for number in range(deeds):
            try:
                _deed(store, random, f"{seed}-{number}")
            except (Conflict, RunFailed, NeedsAttention):
                continue  # others were there first
    return list(recorder.calls)


@contextmanager
def changing_often() -> Iterator[None]:
    """Meanwhile threads take turns within a call: by default one may do all its deeds in its own
    turn, where they are short."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def use_in_threads(url: str, seed: int, threads: int, deeds: int) -> list[Call]:
    """The same by several at once, each as an opener of its own."""
    found: list[Call] = []
    errors: list[BaseException] = []
    together = threading.Barrier(threads)

    def work(number: int) -> None:
        try:
            together.wait()
            found.extend(use(url, seed * 100 + number, deeds))
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    with changing_often():
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    if errors:
        raise errors[0]
    return found


def use_in_processes(url: str, processes: int, threads: int, deeds: int) -> list[Call]:
    """The same from several processes."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawn) as pool:
        futures = [
            pool.submit(use_in_threads, url, seed, threads, deeds)
            for seed in range(1, processes + 1)
        ]
        return [call for future in futures for call in future.result()]
