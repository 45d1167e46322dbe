"""The store as one simulated process reaches it: calls take time, fail, and may be its last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from perdure.core.format import chain
from perdure.errors import StoreUnavailable
from perdure.model import Lease
from perdure.storage.appending import Append, Appended, Outcome, Ref
from perdure.storage.memory.backend import MemoryBackend
from perdure.storage.shortcuts import AgentAndRun as Looked
from tests.simulation import logs
from tests.simulation.scheduler import Process
from tests.simulation.tape import Tape, short


class Weather(Struct):
    """How likely it is that a call fails, or that its process dies at it."""

    kill: float = 0.0
    pause: float = 0.0
    lose_answer: float = 0.0
    refuse: float = 0.0
    lose_notice: float = 0.0
    latency_s: float = 0.002
    slow: float = 0.01
    """Of calls that take a hundred times as long."""
    read_yields: float = 0.2


class Connection:
    """See the module. A `Backend`."""

    def __init__(
        self, process: Process, backend: MemoryBackend, weather: Weather, tape: Tape
    ) -> None:
        self.url = backend.url
        self._process = process
        self._scheduler = process.scheduler
        self._random = process.scheduler.random
        self.backend = backend
        self._weather = weather
        self._tape = tape
        self._closed = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.backend, name)
        if not callable(found):
            return found

        def read(*args: Any, **more: Any) -> Any:
            return self._read(name, found, *args, **more)

        return read

    # -- calls -----------------------------------------------------------------------------

    def _read(self, what: str, method: Callable[..., Any], /, *args: Any, **more: Any) -> Any:
        self._arrive(what, self._random.random() < self._weather.read_yields)
        answer = method(*args, **more)
        self._tape.count("reads")
        return answer

    def read(self, no: int, first: int, last: int, **more: Any) -> Any:
        newest = more.get("newest_first") and last >= 2**40
        began = self._begin(no, logs.End()) if newest else 0
        answer: Any = logs.UNKNOWN
        try:
            found = self._read("read", self.backend.read, no, first, last, **more)
            if found:
                answer = found[0].seq, chain.commit_id(found[0].header)
            return found
        finally:
            if newest:
                self._tape.end(began, answer)

    def ref(self, no: int, name: str) -> Ref | None:
        began = self._begin(no, logs.Look(name))
        answer: Any = logs.UNKNOWN
        try:
            found: Ref | None = self._read("ref", self.backend.ref, no, name)
            answer = logs.seen(found)
            return found
        finally:
            self._tape.end(began, answer)

    def look(self, agent: str, run: str) -> Looked:
        began = self._tape.tick()
        found: Looked = self._read("look", self.backend.look, agent, run)
        if found.agent is not None:
            log = self._tape.agents[found.agent.no]
            self._tape.read(log, str(self._process), began, logs.Look(found.branch), found.ref)
        return found

    def append(self, batch: Sequence[Append]) -> list[Outcome]:
        began = [
            self._tape.begin(
                f"{item.agent} {item.incarnation}", str(self._process), logs.put_of(item)
            )
            for item in batch
        ]
        answers: Sequence[Any] = [logs.UNKNOWN] * len(batch)
        try:
            outcomes: list[Outcome] = self._write(
                "append", lambda: self._append(batch), lambda: [*map(short, batch)]
            )
            answers = [logs.answer_of(outcome) for outcome in outcomes]
        except StoreUnavailable as error:
            outcomes = [error] * len(batch)
            answers = [logs.answer_of(error)] * len(batch)
        finally:
            for one, answer in zip(began, answers, strict=True):
                self._tape.end(one, answer)
        for item, outcome in zip(batch, outcomes, strict=True):
            self._tape.say(
                self._scheduler.now, self._process, "append", short(item), short(outcome)
            )
        return outcomes

    def _append(self, batch: Sequence[Append]) -> list[Outcome]:
        outcomes = self.backend.append(batch)
        for item, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Appended):
                self._tape.agents[outcome.no] = f"{item.agent} {item.incarnation}"
                for one in (item, *item.then):
                    if one.riders.holder is not None and one.epoch is not None:
                        lease = outcome.no, one.branch, one.epoch, one.riders.holder
                        self._tape.leases.append(lease)
        return outcomes

    def lease(
        self,
        no: int,
        branch: str,
        executor: str | None,
        *,
        over: int | None = None,
        release: int | None = None,
    ) -> Lease | Ref:
        asked = logs.Take(branch, executor, over, release)
        began = self._begin(no, asked)

        def write() -> Lease | Ref:
            answer = self.backend.lease(no, branch, executor, over=over, release=release)
            if isinstance(answer, Lease):
                self._tape.leases.append((no, branch, answer.epoch, answer.executor))
            return answer

        answer: Any = logs.UNKNOWN
        try:
            got: Lease | Ref = self._write("lease", write, lambda: (no, asked))
            answer = logs.seen_after(asked, got)
            return got
        except StoreUnavailable as error:
            answer = logs.answer_of(error)
            raise
        finally:
            self._tape.end(began, answer)

    def trim(self, *args: Any) -> Any:
        return self._write("trim", lambda: self.backend.trim(*args), lambda: args[:1])

    def send(self, message: Any) -> Any:
        return self._write("send", lambda: self.backend.send(message), lambda: message)

    def heartbeat(self, executor: str, ttl_ms: int | None, serves: Sequence[str] = ()) -> None:
        self._arrive("heartbeat", True)
        self.backend.heartbeat(executor, ttl_ms, serves)
        if ttl_ms is not None and not self._process.at_end:
            # Here and there the system says at once that a process is gone; else its time runs out.
            if self._random.random() < 0.5:
                self._process.at_end.append(lambda: self.backend.heartbeat(executor, None))
            else:
                self._process.at_end.append(lambda: None)

    def listen(self, executor: str, callback: Callable[[str], None]) -> Callable[[], None]:
        self._scheduler.check()
        return self.backend.listen(executor, callback)

    def notify(self, run_id: str, *, besides: str = "") -> None:
        self._scheduler.check()
        if self._random.random() >= self._weather.lose_notice:
            self.backend.notify(run_id, besides=besides)

    def now(self) -> int:
        return self._process.wall_micros()

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True

    # -- what may happen on the way ----------------------------------------------------------

    def _arrive(self, name: str, takes_time: bool) -> None:
        """Raises StoreUnavailable, with nothing done, or Killed."""
        self._scheduler.check()
        if self._closed:
            raise StoreUnavailable("the store is closed", target=self.url)
        if takes_time:
            self._pass_time()
        if self._process.cut_off:
            self._scheduler.sleep(0.05)
            raise StoreUnavailable("cannot be reached", target=self.url)

    def _pass_time(self) -> None:
        weather = self._weather
        latency_s = weather.latency_s * self._random.random()
        if self._random.random() < weather.slow:
            latency_s *= 100
        self._scheduler.sleep(latency_s)

    def _write(self, name: str, do: Callable[[], Any], what: Callable[[], Any]) -> Any:
        weather = self._weather
        self._arrive(name, True)
        self._maybe_die("before", name)
        if self._random.random() < weather.refuse:
            self._tape.say(self._scheduler.now, self._process, name, short(what()), "refused")
            self._tape.count("refused")
            raise StoreUnavailable("is busy", target=self.url)
        answer = do()
        self._tape.count("writes")
        if name != "append":
            self._tape.say(self._scheduler.now, self._process, name, short(what()), short(answer))
        self._maybe_die("after", name)
        self._pass_time()
        if self._process.cut_off or self._random.random() < weather.lose_answer:
            self._tape.say(self._scheduler.now, self._process, name, short(what()), "no answer")
            self._tape.count("lost answers")
            raise StoreUnavailable("did not answer", target=self.url, outcome="unknown")
        return answer

    def _maybe_die(self, when: str, name: str) -> None:
        if self._random.random() < self._weather.kill:
            self._tape.say(self._scheduler.now, self._process, "killed", when, name)
            self._tape.count("kills")
            self._scheduler.kill(self._process)

    # -- the tape ----------------------------------------------------------------------------

    def _begin(self, no: int, asked: logs.Asked) -> int:
        return self._tape.begin(self._tape.agents[no], str(self._process), asked)
