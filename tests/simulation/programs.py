"""What simulated agents do: programs drawn from the seed, and the one function that goes by them.

A program is a list of operations, as plain data, each with an id of its own. The function returns
what each of them gave, and writes the same into its agent's state, so that both can be compared.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

import perdure
from tests.simulation.world import World

Op = dict[str, Any]

FAILING = "failed as it was to"
POLICIES = ("retry", "probe", "ask", "fail")
KINDS = {
    "step": 3,
    "tool": 5,
    "edit": 2,
    "sleep": 2,
    "signal": 3,
    "ask": 1,
    "child": 1,
    "select": 1,
    "map": 1,
    "value": 1,
    "again": 1,
    "moody": 1,
}


class Stage:
    """Where the code of steps and tools finds the simulation that it is in."""

    world: World
    random: Random
    dawdle: Callable[[], None]
    """Takes a moment, in which its process may be killed or paused."""
    sleep: Callable[[float], None]


# -- steps and tools -------------------------------------------------------------------------


@perdure.step
def think(op: str) -> str:
    Stage.dawdle()
    return f"thought of {op}"


@perdure.step(retry=perdure.Retry(20, first=0.05, longest=1.0))
def moody(op: str) -> str:
    Stage.dawdle()
    if Stage.random.random() < 0.5:
        raise ConnectionError("not now")
    return f"thought of {op}"


@perdure.step(timeout=0.4, retry=perdure.Retry(20, first=0.05, longest=1.0))
def slow(op: str) -> str:
    Stage.sleep(Stage.random.random() * 0.8)
    return f"thought of {op}"


def _act(agent: str, op: str) -> str:
    Stage.dawdle()
    receipt = Stage.world.act(
        agent, op, perdure.idempotency_key(), perdure.fencing_token(), keyed=False
    )
    Stage.dawdle()
    return receipt


@perdure.tool(on_crash="retry", retry=perdure.Retry(20, first=0.05, longest=1.0))
def again(agent: str, op: str) -> str:
    """The receiver ignores what it has seen: only this one may be called twice."""
    Stage.dawdle()
    key, token = perdure.idempotency_key(), perdure.fencing_token()
    receipt = Stage.world.act(agent, op, key, token, keyed=True)
    Stage.dawdle()
    if Stage.random.random() < 0.1:
        raise ConnectionError("the answer was lost")
    return receipt


def _find(agent: str, op: str) -> Any:
    Stage.dawdle()
    return Stage.world.look(agent, op, perdure.fencing_token())


probed = perdure.tool(on_crash="probe", probe=_find, name="probed")(_act)
asked = perdure.tool(on_crash="ask", name="asked")(_act)
failing = perdure.tool(on_crash="fail", name="failing")(_act)
TOOLS = {"retry": again, "probe": probed, "ask": asked, "fail": failing}


def _tool(agent: str, op: Op) -> Any:
    try:
        return TOOLS[op["policy"]](agent, op["id"])
    except perdure.InDoubt:
        return "in doubt"


# -- the function ----------------------------------------------------------------------------


@perdure.agent(dict, name="simulated")
def simulated(run: perdure.Run[dict[str, Any]], program: list[Op], so_far: list[Any]) -> list[Any]:
    """Goes by a program; returns the id of each operation with what it gave."""
    seen = list(so_far)
    for at, op in enumerate(program):
        if op["kind"] == "again":
            return run.again(program[at + 1 :], seen)  # type: ignore[no-any-return]
        if op["kind"] == "raise":
            raise ValueError(FAILING)
        gave = perform(run, op)
        with run.edit(op["id"]) as draft:
            draft.setdefault("trace", []).append([run.id, op["id"], gave])
        seen.append([op["id"], gave])
    return seen


def perform(run: perdure.Run[dict[str, Any]], op: Op) -> Any:
    match op["kind"]:
        case "step":
            return think(op["id"])
        case "moody":
            return (slow if op["slow"] else moody)(op["id"])
        case "tool":
            return _tool(run.agent, op)
        case "edit":
            with run.edit(op["id"] + " more") as draft:
                draft["count"] = draft.get("count", 0) + 1
            return None
        case "sleep":
            run.sleep(op["s"])
            return None
        case "value":
            run.random()
            run.now()
            return str(run.uuid())
        case "signal":
            return run.wait_for(op["name"], timeout=op["s"], default="too late")
        case "ask":
            return run.ask(f"{op['id']}?", schema=str, timeout=op["s"], default="no answer")
        case "select":
            waits = {name: perdure.Signal(name) for name in op["names"]}
            came = run.select(**waits, late=perdure.Timer(timedelta(seconds=op["s"])))
            return [came.name, came.value]
        case "map":
            return run.map(lambda item: _one_of_several(run.agent, item), op["items"], limit=3)
        case "child":
            return _child(run, op)
    raise AssertionError(op)


def _one_of_several(agent: str, item: Op) -> Any:
    return think(item["id"]) if item["kind"] == "step" else _tool(agent, item)


def _child(run: perdure.Run[dict[str, Any]], op: Op) -> Any:
    starter = run.options(key=op["id"], let_live=op["let_live"])
    child = starter.start(simulated, op["agent"], op["program"], [])
    if not op["joined"]:
        return None
    try:
        return ["done", child.result()]
    except perdure.RunFailed:
        return ["cancelled"]
    except ValueError as error:
        return ["failed", str(error)]


# -- drawing them ----------------------------------------------------------------------------


class Author:
    """Draws programs. No two operations of a simulation have the same id.

    Args:
        agents: names for the runs that are started by others.
    """

    def __init__(self, random: Random, agents: int) -> None:
        self._random = random
        self._agents = agents
        self._made = 0

    def program(self, depth: int = 0) -> list[Op]:
        kinds, weights = list(KINDS), list(KINDS.values())
        length = self._random.randint(1, 3 if depth else 8)
        ops = [
            self._op(kind, depth)
            for kind in self._random.choices(kinds, weights, k=length)
            if not (depth and kind in ("child", "again"))
        ]
        if self._random.random() < 0.1:
            ops.append(self._op("raise", depth))
        return ops

    def _op(self, kind: str, depth: int) -> Op:
        draw = self._random
        self._made += 1
        op: Op = {"kind": kind, "id": f"{kind}-{self._made}"}
        match kind:
            case "moody":
                op["slow"] = draw.random() < 0.5
            case "tool":
                op["policy"] = draw.choice(POLICIES)
            case "sleep":
                op["s"] = draw.choice((0.05, 0.5, 1.5, 4.0))
            case "signal":
                op["name"] = draw.choice("ab")
                op["s"] = draw.choice((None, None, 0.5, 3.0))
            case "ask":
                op["s"] = draw.choice((None, 2.0))
            case "select":
                op["names"] = ["a", "b"]
                op["s"] = draw.choice((0.3, 2.0))
            case "map":
                op["items"] = [
                    self._op(draw.choice(("step", "tool")), depth)
                    for _ in range(draw.randint(2, 4))
                ]
            case "child":
                op["agent"] = f"child-{self._made % self._agents}"
                op["program"] = self.program(depth + 1)
                op["joined"], op["let_live"] = draw.random() < 0.7, draw.random() < 0.3
        return op
