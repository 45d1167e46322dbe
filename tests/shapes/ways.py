"""Each way in which a value goes into a store, and what comes back of it then and later.

`put` writes one shape in all ways and keeps what was taken under the seed; `look` compares that in
another handle, store or process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, get_origin

from typing_extensions import is_typeddict

import perdure
from perdure.engine.journal.values import parameters_of
from perdure.errors import NeedsAttention, PerdureError
from perdure.store import Store
from tests.engine.waits import go
from tests.shapes.alike import difference
from tests.shapes.generate import Shape
from tests.shapes.wider import Wider


class LossError(AssertionError):
    """A value came back otherwise."""


def same(given: Any, back: Any, where: str, odd: bool = False) -> None:
    """Raises LossError where they differ; `odd`: see `Shape`."""
    found = difference(given, back, odd=odd)
    if found is not None:
        raise LossError(f"{where}: {found}")


def shape_of(seed: int) -> Shape | None:
    """The shape of a seed; None where its library refuses such a class, or Perdure its type."""
    import pydantic

    try:
        shape = Wider(seed).shape()
    except (pydantic.PydanticUserError, pydantic.errors.PydanticSchemaGenerationError):
        return None
    try:
        perdure.Schema(shape.kind).root
    except PerdureError:
        return None
    return shape


def put(store: Store, seed: int) -> dict[str, bool]:
    """Put a shape in by each way; which of them took it."""
    shape = shape_of(seed)
    return {} if shape is None else put_shape(store, seed, shape)


def put_shape(store: Store, seed: int, shape: Shape) -> dict[str, bool]:
    """As `put`, of a shape that somebody has."""
    return {
        **{f"state {how}": _state(store, seed, shape, how) for how in STATES},
        "calls": _calls(store, seed, shape),
    }


def look(store: Store, seed: int, taken: dict[str, bool]) -> None:
    """Compare what was taken with what is there.

    Raises:
        LossError: it differs.
    """
    shape = shape_of(seed)
    assert shape is not None or not taken
    if shape is not None:
        look_at_shape(store, seed, shape, taken)


def look_at_shape(store: Store, seed: int, shape: Shape, taken: dict[str, bool]) -> None:
    """As `look`."""
    for how in STATES:
        if taken[f"state {how}"]:
            agent = store.agent(f"{how}-{seed}", _schema(shape))
            same(
                {"a": [], **_expected(how, shape)},
                agent.state,
                f"{seed}: {how}, read anew",
                shape.odd,
            )
            assert agent.drift() == [], f"{seed}: {how}: {agent.drift()}"
    if taken["calls"]:
        agents = _agents(seed, shape)
        same(
            shape.value,
            go(store, agents, f"run-{seed}", shape.value),
            f"{seed}: run.result",
            shape.odd,
        )
        handle = store.handle(f"run-{seed}/f{seed}/main")
        same(
            shape.value,
            perdure.Schema(shape.kind).build(handle.info.result),
            f"{seed}: result",
            shape.odd,
        )


# -- states ------------------------------------------------------------------------------------


def _schema(shape: Shape) -> Any:
    return perdure.Schema(dict[str, list[shape.kind]], id="holder")  # type: ignore[name-defined]


def _initial(store: Store, agent: str, shape: Shape) -> None:
    made = store.agent(agent, _schema(shape), initial={"a": [], "b": [shape.value]})
    made.checkpoint("made")


def _save(store: Store, agent: str, shape: Shape) -> None:
    made = store.agent(agent, _schema(shape), initial={"a": []})
    made.save({"a": [], "b": [shape.value]})


def _assign(store: Store, agent: str, shape: Shape) -> None:
    with store.agent(agent, _schema(shape), initial={"a": []}).edit("assigned") as draft:
        draft["b"] = [shape.value]


def _append(store: Store, agent: str, shape: Shape) -> None:
    made = store.agent(agent, _schema(shape), initial={"a": []})
    made.update(lambda draft: draft.setdefault("b", []))
    made.update(lambda draft: draft["b"].append(shape.value))


def _fill(store: Store, agent: str, shape: Shape) -> None:
    """Sets and dicts member by member, in a draft."""
    made = store.agent(agent, _schema(shape), initial={"a": []})
    with made.edit("filled") as draft:
        filled = isinstance(shape.value, set) or _is_plain_dict(shape)
        draft["b"] = [type(shape.value)() if filled else shape.value]
        if isinstance(shape.value, set):
            for member in shape.value:
                draft["b"][0].add(member)
        elif _is_plain_dict(shape):
            for key, item in shape.value.items():
                draft["b"][0][key] = item


def _is_plain_dict(shape: Shape) -> bool:
    """A TypedDict may have keys that it needs from its beginning."""
    return type(shape.value) is dict and not is_typeddict(get_origin(shape.kind) or shape.kind)


STATES: dict[str, Callable[[Store, str, Shape], None]] = {
    "initial": _initial,
    "save": _save,
    "assign": _assign,
    "append": _append,
    "fill": _fill,
}


def _expected(how: str, shape: Shape) -> dict[str, Any]:
    return {"b": [shape.value]}


def _state(store: Store, seed: int, shape: Shape, how: str) -> bool:
    """Whether it was taken. What is refused leaves nothing behind."""
    agent = f"{how}-{seed}"
    try:
        STATES[how](store, agent, shape)
    except PerdureError:
        made = store.agent(agent, _schema(shape), initial={"a": []})
        left: Any = {"a": [], "b": []} if how == "append" and made.exists else {"a": []}
        same(left, made.state, f"{seed}: {how}, refused", shape.odd)
        return False
    return True


# -- calls -------------------------------------------------------------------------------------


def _agents(seed: int, shape: Shape) -> Any:
    """An agent function that takes the value, and gets it from a step, a tool, a signal, an answer
    and a run that it starts; it returns it."""
    kind, value = shape.kind, shape.value

    @perdure.step(returns=kind)
    def give() -> Any:
        return value

    @perdure.tool(returns=kind)
    def act(argument: Any) -> Any:
        return value

    act.__annotations__["argument"] = kind

    def child(run: perdure.Run[dict], argument: Any) -> Any:
        same(value, argument, f"{seed}: argument of a child", shape.odd)
        return argument

    def f(run: perdure.Run[dict], argument: Any) -> Any:
        same(value, argument, f"{seed}: argument of a run", shape.odd)
        same(value, give(), f"{seed}: result of a step", shape.odd)
        same(value, act(value), f"{seed}: result of a tool", shape.odd)
        same(value, run.wait_for("s", schema=kind), f"{seed}: signal", shape.odd)
        same(value, run.ask("Which?", schema=kind), f"{seed}: answer", shape.odd)
        same(
            value,
            run.start(inner, f"child-{seed}", value).result(),
            f"{seed}: result of a child",
            shape.odd,
        )
        return argument

    child.__annotations__ |= {"argument": kind, "return": kind}
    f.__annotations__ |= {"argument": kind, "return": kind}
    inner = perdure.agent(dict, name=f"child{seed}")(child)
    agent = perdure.agent(dict, name=f"f{seed}")(f)
    agent.__dict__["child"] = inner
    return agent


def _go_on_child(store: Store, function: Any, name: str) -> None:
    """What a worker does: the arguments come out of the message that asked for the run."""
    for run in store.runs(function=name, unfinished=True):
        inbox = store.runner._context.backend.inbox(run.id, kind="start")
        args, _ = parameters_of(function).build(*inbox[0].value["input"])
        go(store, function, run.agent, *args, key=run.key)


def _send(send: Callable[[Any], Any], shape: Shape) -> None:
    """A list of instances is sent in its plain form: nobody says there of what type it is."""
    try:
        send(shape.value)
    except PerdureError:
        send(perdure.Schema(shape.kind).take(shape.value, aliases_refused=False))


def _calls(store: Store, seed: int, shape: Shape) -> bool:
    """Whether all of them took it. A refusal is an error of a call, in the run or outside of it."""
    agent, name = _agents(seed, shape), f"run-{seed}"
    try:
        go(store, agent, name, shape.value)
        handle = store.handle(f"{name}/f{seed}/main")
        _send(partial(handle.signal, "s"), shape)
        go(store, agent, name, shape.value)
        _send(handle.answer, shape)
        go(store, agent, name, shape.value)
        _go_on_child(store, agent.__dict__["child"], f"child{seed}")
        back = go(store, agent, name, shape.value)
    except LossError:
        raise
    except PerdureError as error:
        if isinstance(error, NeedsAttention):
            raise
        return False
    if handle.status != "done":
        return False  # a signal that its type refuses is recorded, and the run waits on
    same(shape.value, back, f"{seed}: run.result", shape.odd)
    return True
