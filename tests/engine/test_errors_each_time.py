"""What a function gets of an error that left a call: the same the first time as on replay."""

from __future__ import annotations

import asyncio
import io
import urllib.error
from email.message import Message
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

import perdure
from perdure.store import Store
from perdure.testing import run_until_waiting
from tests.engine.conftest import CrashError, Crashes

SEEN: list[Any] = []


class Response:
    def __init__(self, status: int) -> None:
        self.status_code = status
        self.headers = {"retry-after": "60"}


class Refused(Exception):
    """As HTTP clients have them."""

    def __init__(self, message: str, *, response: Any, status: int = 0) -> None:
        super().__init__(message)
        self.response = response
        self.status = status


class Kind(Enum):
    RATE = 1


class Slotted(Exception):
    __slots__ = ("code", "kind")

    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.code, self.kind = code, Kind.RATE


class Port(BaseModel):
    number: int


def _refused() -> Exception:
    return Refused("429", response=Response(429), status=429)


def _caused() -> Exception:
    error = RuntimeError("no connection")
    error.__cause__ = TimeoutError("10 s")
    return error


def _noted() -> Exception:
    error = RuntimeError("no")
    error.add_note("see the runbook")
    return error


def _http() -> Exception:
    return urllib.error.HTTPError("http://h", 429, "Too Many", Message(), io.BytesIO(b"x"))


def _invalid() -> Exception:
    try:
        Port.model_validate({"number": "x"})
    except ValidationError as error:
        return error
    raise AssertionError


def asked(error: Exception, name: str) -> Any:
    """What a function may ask an error for, in words that can be compared."""
    try:
        value = getattr(error, name)
        value = value() if name == "errors" else value
        if isinstance(value, BaseException):
            return type(value).__name__, str(value)
        return type(value).__name__, repr(value)
    except Exception as failed:
        return type(failed).__name__, str(failed)


NAMES = (
    "args",
    "response",
    "status",
    "code",
    "kind",
    "__cause__",
    "__notes__",
    "headers",
    "hdrs",
    "fp",
    "file",
    "errors",
    "nothing",
)
ERRORS = {
    "an HTTP client's": _refused,
    "one with a cause": _caused,
    "one with notes": _noted,
    "slots": lambda: Slotted(7),
    "urllib's": _http,
    "pydantic's": _invalid,
    "arguments that are not plain": lambda: RuntimeError("a", Response(1), 3),
    "a cause that is lost": lambda: _with_cause(_refused()),
}


def _with_cause(cause: Exception) -> Exception:
    error = RuntimeError("no")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("decorate", [perdure.step, perdure.tool])
def test_i5_a_function_gets_the_same_of_an_error_each_time(name: str, decorate: Any) -> None:
    """An HTTP client's error had its `response` the first time, and none on replay: a function that
    decided by `error.response.status_code` needed attention though nothing had crashed; one that
    asked by `getattr` took another way, and nobody was told."""

    @decorate(name="fails")
    def fails() -> None:
        raise ERRORS[name]()

    @perdure.agent
    def asks(run: perdure.Run[dict[str, Any]]) -> str:
        try:
            fails()
        except Exception as error:
            SEEN.append([type(error), str(error), *(asked(error, one) for one in NAMES)])
        return str(run.wait_for("go"))

    SEEN.clear()
    with perdure.open("memory://") as store:
        run = run_until_waiting(store, asks, "a")
        run.signal("go", "on")
        assert store.run(asks, "a") == "on"  # gone over again
    first, again = SEEN
    assert first == again


def test_who_asks_for_what_is_not_kept_is_told_the_way_out() -> None:
    @perdure.step
    def fetch() -> None:
        raise _refused()

    @perdure.agent
    def asks(run: perdure.Run[dict[str, Any]]) -> int:
        try:
            fetch()
        except Refused as error:
            if error.status == 429:  # plain
                return int(error.response.status_code)
        return 0

    said = r"'response' of Refused is not kept.*inside the step"
    with perdure.open("memory://") as store, pytest.raises(AttributeError, match=said):
        store.run(asks, "a")


def test_what_is_all_kept_is_the_error_itself_the_first_time() -> None:
    """With its own traceback, for whoever looks for the line that raised it."""
    raised = ValueError("n", 3)

    @perdure.step
    def fails() -> None:
        raise raised

    @perdure.agent
    def passes(run: perdure.Run[dict[str, Any]]) -> None:
        fails()

    with perdure.open("memory://") as store, pytest.raises(ValueError, match="n") as caught:
        store.run(passes, "a")
    assert caught.value is raised


def test_one_that_is_made_again_shows_where_it_was_raised() -> None:
    @perdure.step
    def fails() -> None:
        raise Refused("429", response=Response(429))

    @perdure.agent
    def passes(run: perdure.Run[dict[str, Any]]) -> None:
        fails()

    with perdure.open("memory://") as store, pytest.raises(Refused) as caught:
        store.run(passes, "a")
    assert any(entry.name == "fails" for entry in caught.traceback)


def test_a_stop_iteration_is_raised_as_such(store: Store) -> None:
    """`next(…)` without a default: `store.run` raised "generator raised StopIteration" in place of
    it, and whoever caught StopIteration around it did not."""

    @perdure.agent(dict)
    def pick(run: perdure.Run[dict]) -> int:
        return run.call(lambda: next(iter([])))

    for _ in range(2):
        with pytest.raises(StopIteration):
            store.run(pick, "a")
    with pytest.raises(StopIteration):
        store.handle("a/pick/main").result()


@pytest.mark.parametrize("caught", [True, False])
def test_a_cancelled_error_of_an_edits_own_code_is_its_outcome(
    store: Store, crash: Crashes, caught: bool
) -> None:
    """A loop that the block ran had a cancelled task. As the end of a step that is an outcome; of a
    plain function's edit it was taken for one that ends the program, each time anew: the run never
    came to an end."""

    async def of_a_cancelled_task() -> None:
        task = asyncio.create_task(asyncio.sleep(1))
        task.cancel()
        await task

    @perdure.agent(dict)
    def plain(run: perdure.Run[dict]) -> str:
        try:
            with run.edit("noted") as draft:
                draft["answer"] = 1
                asyncio.run(of_a_cancelled_task())
        except asyncio.CancelledError:
            crash("behind")
            if not caught:
                raise
        return "nobody was cancelled"

    crash.arm("behind")
    with pytest.raises(CrashError):
        store.run(plain, "a")
    if caught:
        assert store.run(plain, "a") == "nobody was cancelled"
    else:
        with pytest.raises(perdure.RunFailed):
            store.run(plain, "a")
    assert store.handle("a/plain/main").status == ("done" if caught else "failed")
    assert store.agent("a").state == {}
