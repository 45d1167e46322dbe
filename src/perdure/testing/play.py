"""Run an agent function in memory, with stand-ins for its tools, and see what it did."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from perdure.core.values import Plain
from perdure.engine.functions import spec_of
from perdure.engine.handle import RunHandle
from perdure.engine.run import Fakes, Run
from perdure.engine.runner import Command, run_id
from perdure.model import MISSING, Commit
from perdure.state.policy import SnapshotPolicy
from perdure.storage.memory import MemoryBackend
from perdure.store import Store

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
AGENT = "played"


@dataclass(frozen=True, slots=True)
class PlayedCall:
    """One recorded call: a tool's or a step's, with a preview of its arguments.

    Attributes:
        value: the plain result; MISSING where it raised.
        error: the name and words of what it raised.
    """

    kind: str
    name: str
    arguments: str
    value: Plain
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Played(Generic[T, R]):
    """What came of a played run: its typed result, the final state, its recorded calls in order."""

    result: R
    state: T
    calls: list[PlayedCall]


def play(
    function: Callable[Concatenate[Run[T], P], R], /, *args: Any, state: T | Any = MISSING,
    answers: Sequence[Any] = (), tools: Fakes | None = None, **kwargs: Any,
) -> Played[T, R]:  # fmt: skip
    """Run an agent function once, on an agent of its own, with the real engine over memory.

    Args:
        state: the agent's initial state; default: its schema's type, called without arguments.
        answers: to the questions that the run asks, in order; one left over is an error.
        tools: stand-ins for tools and steps by the function that is called: ``{refund: fake}``,
            or for a callable recorded with `Run.call`, by itself.

    Raises:
        What the function raises.
        ValueError: an answer is left over.
    """
    if answers:
        raise ValueError(f"answers left over, as runs cannot ask yet: {list(answers)!r:.200}")
    spec = spec_of(function)
    backend = MemoryBackend()
    store = Store(backend, SnapshotPolicy())
    try:
        agent = store.agent(AGENT, spec.schema, initial=state)
        with agent.edit("played"):
            pass
        command = Command(function, AGENT, "main", args, kwargs, tools)
        result = store.runner.run(command)
        handle: RunHandle[Any] = store.handle(run_id(AGENT, spec.name, "main"))
        agent.refresh()
        return Played(result, agent.state, _calls(agent.log(), handle.id))
    finally:
        store.close()


def _calls(log: Iterable[Commit], run: str) -> list[PlayedCall]:
    calls: list[PlayedCall] = []
    previews: dict[str, str] = {}
    for commit in log:
        for record in commit.records:
            if record.get("run") == run and record["t"] == "intent":
                previews[str(record["place"])] = str(record["preview"])
            elif record.get("run") == run and record["t"] in ("step", "outcome"):
                calls.append(_call(record, previews))
    return calls


def _call(record: Mapping[str, Any], previews: Mapping[str, str]) -> PlayedCall:
    place, error = str(record["place"]), record.get("error")
    return PlayedCall(
        "step" if record["t"] == "step" else "tool",
        place.rpartition("#")[0],
        str(record.get("preview", previews.get(place, ""))),
        record.get("value", MISSING),
        f"{error['type'].partition(':')[2]}: {error['text']}" if error else None,
    )
