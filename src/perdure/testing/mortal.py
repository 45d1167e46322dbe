"""The death of a process, played inside a living one: from some moment on it reaches nothing."""

from __future__ import annotations

import base64
import functools
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from perdure.core.values import codec
from perdure.engine.execution.current_run import current
from perdure.engine.functions.decorators import mark_of
from perdure.engine.journal.any_values import take_any
from perdure.engine.journal.values import is_async
from perdure.errors import PerdureError, StoreUnavailable
from perdure.missing import MISSING
from perdure.private import make_file
from perdure.public_data import PublicData
from perdure.storage.capabilities import Backend
from perdure.testing.boundaries import WRITES, Counter

AFTER_DEATH = ("url", "now", "close", "listen", "notify")
"""The methods of its store that a dead process may still use: those that change nothing, or tidy up
after it."""


class Killed(BaseException):
    """Raised in a step or tool where its process would have died. Catching it is useless: nothing
    of that process gets into the store any more, and no step or tool is called."""


class Life:
    """The life of one played process. `counter` ends it."""

    def __init__(self, kill_at: int | None) -> None:
        self.ended_at: str | None = None
        self.counter = Counter(kill_at, self._end)

    def _end(self, where: str) -> None:
        self.ended_at = where
        if where.startswith("at "):
            raise Killed(where)  # in the middle of what the function calls

    @property
    def dead(self) -> bool:
        return self.ended_at is not None

    def passed(self, when: str, what: str) -> None:
        """Passes a boundary around something that the function does.

        Raises:
            Killed: the process has ended.
        """
        if not self.dead:
            self.counter.passed(when, what)
        if self.dead:
            raise Killed(self.ended_at)


class Mortal:
    """A backend as one process has it open: with a boundary around each of its writes, and
    unreachable once the process has ended."""

    def __init__(self, backend: Backend, life: Life) -> None:
        self._backend = backend
        self._life = life
        self._lock = threading.RLock()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._backend, name)
        if name in AFTER_DEATH or not callable(found):
            return found
        if name == "heartbeat":
            return self._heartbeat
        call = self._write if name in WRITES else self._read
        return functools.partial(call, name, found)

    def _heartbeat(self, executor: str, ttl_ms: int | None, *more: Any, **others: Any) -> None:
        # The kernel tells others that a process has ended; here closing its store does.
        if ttl_ms is not None:
            self._check()
        self._backend.heartbeat(executor, ttl_ms, *more, **others)

    def _read(self, name: str, method: Callable[..., Any], *args: Any, **more: Any) -> Any:
        self._check()
        return method(*args, **more)

    def _write(self, name: str, method: Callable[..., Any], *args: Any, **more: Any) -> Any:
        with self._lock:
            if not self._life.dead:
                self._life.counter.passed("before", name)
            answer = None
            if not self._life.dead:
                answer = method(*args, **more)
                self._life.counter.passed("after", name)
            if not self._life.dead:
                return answer
            if more.get("release") is not None:
                return None  # who is dead gives no lease back, and complains of nothing
            if name == "append":  # which answers for each commit
                return [self._gone() for _ in args[0]]
            raise self._gone()

    def _check(self) -> None:
        if self._life.dead:
            raise self._gone()

    def _gone(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"this process has ended {self._life.ended_at}",
            target=self._backend.url,
            hint="it was killed by kill_at_every_boundary",
            outcome="unknown",
        )


class PhysicalCall(PublicData, Struct, frozen=True):
    """One real call of the function of a step or tool.

    Attributes:
        place: the call's place in the run, e.g. ``refund#1``; `key`: a tool's idempotency key,
            which distinguishes the calls of several turns at one place.
        ended: True if it ended; `value` is its result then, as plain data; MISSING if it raised, or
            returned what cannot be stored.
    """

    place: str
    kind: Literal["step", "tool"]
    ended: bool = False
    value: Any = MISSING
    key: str = ""


class CallLog:
    """The real calls, in a file: it outlives processes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, call: PhysicalCall) -> None:
        value = ""
        if call.value is not MISSING:
            value = base64.b64encode(codec.encode(call.value)).decode()
        with os.fdopen(make_file(str(self._path), os.O_WRONLY | os.O_APPEND), "a") as file:
            file.write(json.dumps([call.place, call.kind, call.ended, value, call.key]) + "\n")

    def read(self) -> list[PhysicalCall]:
        if not self._path.exists():
            return []
        calls: list[PhysicalCall] = []
        for line in self._path.read_text().splitlines():
            place, kind, ended, value, key = json.loads(line)
            decoded = codec.decode(base64.b64decode(value)) if value else MISSING
            call = PhysicalCall(place, kind, ended, decoded, key)
            begun = PhysicalCall(place, kind, key=key)
            if ended and begun in calls:
                calls[calls.index(begun)] = call
            else:
                calls.append(call)
        return calls


class WatchedCalls(Mapping[Any, Any]):
    """Stand-ins for tools and steps that note each real call, and put a boundary on each side. A
    function without a stand-in is noted, too."""

    def __init__(
        self, fakes: Mapping[Any, Any], log: CallLog, passed: Callable[[str, str], None]
    ) -> None:
        self._fakes = fakes
        self._log = log
        self._passed = passed

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        return len(self._fakes)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._fakes)

    def __getitem__(self, key: Any) -> Any:
        return self._fakes[key]

    def get(self, key: Any, default: Any = None) -> Any:
        function = self._fakes.get(key, default)
        if function is None:  # a tool without a probe
            return None
        mark = mark_of(key)
        kind = mark.kind if mark is not None else "step"
        return self._watched(function, kind)

    def _watched(self, function: Any, kind: Literal["step", "tool"]) -> Any:
        if is_async(function):

            async def call_async(*args: Any, **kwargs: Any) -> Any:
                begun = self._begin(kind)
                try:
                    value = await function(*args, **kwargs)
                except Exception:
                    self._end(begun)
                    raise
                return self._end(begun, value)

            return functools.wraps(function)(call_async)

        def call(*args: Any, **kwargs: Any) -> Any:
            begun = self._begin(kind)
            try:
                value = function(*args, **kwargs)
            except Exception:
                self._end(begun)
                raise
            return self._end(begun, value)

        return functools.update_wrapper(call, function)

    def _begin(self, kind: Literal["step", "tool"]) -> PhysicalCall | None:
        frame = current()
        attempt = frame.attempt if frame is not None else None
        if attempt is None:
            return None  # a probe: it only looks
        self._passed("before", kind)
        begun = PhysicalCall(str(attempt.call.place), kind, key=attempt.call.key)
        self._log.add(begun)
        return begun

    def _end(self, begun: PhysicalCall | None, value: Any = MISSING) -> Any:
        if begun is not None:
            plain = MISSING
            with suppress(PerdureError):
                plain = take_any(value, "value") if value is not MISSING else MISSING
            self._log.add(replace(begun, ended=True, value=plain))
            self._passed("after", begun.kind)
        return value
