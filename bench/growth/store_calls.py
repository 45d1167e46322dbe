"""What is called of a store: one log that grows, or as many agents and runs."""

from __future__ import annotations

import perdure
from bench.growth.calls import Measure, call, often
from bench.growth.places import Place, finishing, slide, waiting
from perdure.model import AgentInfo

PAGE = 5


def _info(place: Place, name: str = "a") -> AgentInfo:
    found = place.store.find(name)
    assert found is not None
    return found


@call("Store.find", "Store.agent_of", history="log")
def find(place: Place, measure: Measure) -> None:
    often(measure, lambda _: place.store.agent_of(_info(place)).state)


@call("Store.export_log", history="log", growth="linear")
def export_log(place: Place, measure: Measure) -> None:
    info = _info(place)
    measure(lambda: list(place.store.export_log(info)))


@call("Store.import_log", history="log", growth="linear")
def import_log(place: Place, measure: Measure) -> None:
    entries = list(place.store.export_log(_info(place)))
    with perdure.open(place.other, durability="os") as other:
        measure(lambda: other.import_log(entries))


@call("Store.delete", history="log")
def delete(place: Place, measure: Measure) -> None:
    measure(lambda: place.store.delete("a"))


@call("Store.checkpoint_all", history="log")
def name_all(place: Place, measure: Measure) -> None:
    often(measure, lambda number: place.store.checkpoint_all(f"all {number}"))


@call("Store.purge", history="log", growth="linear")
def purge(place: Place, measure: Measure) -> None:
    place.store.delete("a", purge=True)
    measure(place.store.purge)


@call("Store.sizes", history="log", growth="linear")
def sizes(place: Place, measure: Measure) -> None:
    measure(lambda: (place.store.sizes("a"), place.store.sizes()))


@call("Store.check_pages", "Store.shrink", "Store.flush", history="log", growth="linear")
def pages(place: Place, measure: Measure) -> None:
    def look_after() -> None:
        place.store.check_pages()
        place.store.shrink()
        place.store.flush()

    measure(look_after)


# -- beside as many agents -------------------------------------------------------------------------


@call("Store.agents", history="agents", what="Store.agents, a page")
def agents(place: Place, measure: Measure) -> None:
    often(measure, lambda _: place.store.agents(after="agent-000001", limit=PAGE))


@call(
    "Store.agent",
    "Agent.edit",
    history="agents",
    what="Store.agent and Agent.edit beside as many agents",
)
def new_agent(place: Place, measure: Measure) -> None:
    def make(number: int) -> None:
        agent = place.store.agent(f"new-{number}", initial={"n": 0, "window": [0] * 10})
        slide(agent, number)

    often(measure, make)


@call("Store.runs", history="agents", what="Store.runs, a page")
def page_of_runs(place: Place, measure: Measure) -> None:
    often(measure, lambda _: place.store.runs(limit=PAGE))


@call("Store.runs", history="agents", what="Store.runs, a page of the newest")
def newest_runs(place: Place, measure: Measure) -> None:
    often(measure, lambda _: place.store.runs(limit=PAGE, newest_first=True))


@call("Store.runs", history="agents", what="Store.runs of a function, a page")
def runs_of_function(place: Place, measure: Measure) -> None:
    def look(_: int) -> None:
        place.store.runs(function="finishing", limit=PAGE)
        place.store.runs(function="finishing", limit=PAGE, newest_first=True)

    often(measure, look)


@call("Store.runs", history="agents", what="Store.runs of an agent")
def runs_of_agent(place: Place, measure: Measure) -> None:
    often(measure, lambda _: place.store.runs("a"))


@call("Store.runs", history="agents", growth="linear", what="Store.runs, all")
def every_run(place: Place, measure: Measure) -> None:
    measure(lambda: place.store.runs())


@call("Store.questions", history="agents", what="Store.questions, a page")
def page_of_questions(place: Place, measure: Measure) -> None:
    often(measure, lambda _: place.store.questions(limit=PAGE))


@call(
    "Store.checkpoint_all", history="agents", growth="linear", what="Store.checkpoint_all of them"
)
def name_many(place: Place, measure: Measure) -> None:
    often(measure, lambda number: place.store.checkpoint_all(f"all {number}"))


@call("Store.delete", history="agents", what="Store.delete beside as many agents")
def delete_one(place: Place, measure: Measure) -> None:
    often(measure, lambda number: place.store.delete(f"agent-{number:06}"))


@call("Store.delete", history="agents", growth="linear", what="Store.delete of as many agents")
def delete_all(place: Place, measure: Measure) -> None:
    measure(lambda: place.store.delete(prefix="agent-"))


@call("Store.purge", history="agents", what="Store.purge of one of as many agents")
def purge_one(place: Place, measure: Measure) -> None:
    def prepare(number: int) -> str:
        name = f"agent-{number:06}"
        place.store.delete(name, purge=True)
        return name

    for name in map(prepare, range(3)):
        measure(lambda name=name: place.store.purge(name))  # type: ignore[misc]


@call(
    "Store.run",
    "Options.run",
    "Store.options",
    history="agents",
    what="Store.run beside as many agents",
)
def run(place: Place, measure: Measure) -> None:
    often(measure, lambda number: place.store.run(finishing, f"new-{number}"))


@call("Store.start", "Options.start", history="agents", what="Store.start beside as many agents")
def start(place: Place, measure: Measure) -> None:
    often(measure, lambda number: place.store.start(finishing, f"new-{number}"))


@call(
    "Store.handle",
    "RunHandle.info",
    "RunHandle.status",
    "RunHandle.id",
    history="agents",
    what="Store.handle, RunHandle.info beside as many agents",
)
def handle(place: Place, measure: Measure) -> None:
    often(measure, lambda _: place.handle().info)


@call("Store.alive", history="agents")
def alive(place: Place, measure: Measure) -> None:
    often(measure, lambda number: place.store.alive(f"x{number}"))


@call(
    "RunHandle.signal",
    "RunHandle.answer",
    "RunHandle.questions",
    "RunHandle.cancel",
    "RunHandle.why",
    "RunHandle.report",
    history="agents",
    what="RunHandle.signal, questions, why, report, answer, cancel beside as many agents",
)
def steer(place: Place, measure: Measure) -> None:
    handle = place.handle()
    measure(lambda: handle.signal("go"))
    measure(handle.questions)
    measure(handle.why)
    measure(handle.report)
    measure(lambda: handle.answer(True))
    measure(handle.cancel)


# -- of one agent ----------------------------------------------------------------------------------


@call("Store.run", history="runs", what="Store.run, the next of as many runs of an agent")
def next_run(place: Place, measure: Measure) -> None:
    place.handle().cancel()
    often(measure, lambda number: place.store.options(key=f"n{number}").run(finishing, "a"))


@call("Store.run", "RunHandle.result", history="runs", what="Store.run, one that is finished")
def run_again(place: Place, measure: Measure) -> None:
    often(measure, lambda number: place.store.options(key=f"k{number}").run(finishing, "a"))


@call("Store.delete", history="runs", what="Store.delete of an agent of as many runs")
def delete_with_runs(place: Place, measure: Measure) -> None:
    measure(lambda: place.store.delete("a"))


@call(
    "Agent.rollback", "Agent.undo", history="runs", what="Agent.edit and undo beside as many runs"
)
def undo_beside_runs(place: Place, measure: Measure) -> None:
    place.handle().cancel()
    agent = place.agent()

    def again(number: int) -> None:
        with agent.edit("one") as draft:
            draft["n"] = number
        agent.undo()

    often(measure, again)


@call("Store.start", history="runs", what="Store.start beside as many runs of the agent")
def start_beside_runs(place: Place, measure: Measure) -> None:
    often(measure, lambda number: place.store.options(key=f"w{number}").start(waiting, "a", 1))
