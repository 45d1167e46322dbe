"""What is called of a run: from outside, and inside of it, behind as many steps or turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.growth.calls import Growth, Measure, call, often
from bench.growth.places import (
    PROBES,
    Place,
    chatting,
    finishing,
    look,
    pay,
    probed,
    turning,
    waiting,
)
from perdure import Run, Timer, Worker
from perdure.testing.driving import run_until_waiting
from perdure.types import WorkerEvent

# -- from outside ----------------------------------------------------------------------------------


@call(
    "RunHandle.info", "RunHandle.status", "RunHandle.typed", history="steps", what="RunHandle.info"
)
def info(place: Place, measure: Measure) -> None:
    often(measure, lambda _: place.handle().typed(waiting).info)


@call("RunHandle.signal", history="steps")
def signal(place: Place, measure: Measure) -> None:
    handle = place.handle()
    often(measure, lambda number: handle.signal("go", number))


@call("RunHandle.questions", history="steps", growth="linear")
def questions(place: Place, measure: Measure) -> None:
    measure(place.handle().questions)


@call("RunHandle.answer", history="steps", growth="linear")
def answer(place: Place, measure: Measure) -> None:
    handle = place.handle()
    measure(lambda: handle.answer(True))


@call("RunHandle.why", history="steps", growth="linear")
def why(place: Place, measure: Measure) -> None:
    measure(place.handle().why)


@call("RunHandle.report", history="steps", growth="linear")
def report(place: Place, measure: Measure) -> None:
    measure(place.handle().report)


@call("RunHandle.effects", history="steps", growth="linear")
def effects(place: Place, measure: Measure) -> None:
    measure(place.handle().effects)


@call("RunHandle.cancel", history="steps", growth="linear")
def cancel(place: Place, measure: Measure) -> None:
    handle = place.handle()
    measure(handle.cancel)


@call("RunHandle.fork", history="steps", growth="linear")
def fork(place: Place, measure: Measure) -> None:
    handle = place.handle()
    measure(lambda: handle.fork(f"look#{place.length // 2}", branch="another"))


@call("RunHandle.retry", history="steps", growth="linear")
def retry(place: Place, measure: Measure) -> None:
    handle = place.handle()
    handle.cancel()
    measure(lambda: handle.retry(f"look#{place.length // 2}"))


@call("Store.run", history="steps", growth="linear", what="Store.run, resumed behind as many steps")
def resume(place: Place, measure: Measure) -> None:
    place.handle().answer(True)
    measure(lambda: place.store.run(waiting, "a", place.length))


@call("Store.run", "Run.again", history="turns", what="Store.run, resumed behind as many turns")
def resume_turn(place: Place, measure: Measure) -> None:
    PROBES[:] = [lambda run: None]
    measure(lambda: place.store.run(turning, "a", place.length))


@call("RunHandle.signal", history="inbox", what="RunHandle.signal behind as many signals")
def signal_more(place: Place, measure: Measure) -> None:
    handle = place.handle()
    often(measure, lambda number: handle.signal("other", number))


@call(
    "RunHandle.questions",
    history="inbox",
    growth="linear",
    what="RunHandle.questions behind as many signals",
)
def questions_behind(place: Place, measure: Measure) -> None:
    measure(place.handle().questions)


@call(
    "Store.run", history="inbox", growth="linear", what="Store.run, resumed behind as many signals"
)
def resume_behind(place: Place, measure: Measure) -> None:
    place.handle().answer(True)
    measure(lambda: place.store.run(waiting, "a", 1))


@call("Run.wait_for", history="taken", what="Run.wait_for behind as many signals that were taken")
def take_more(place: Place, measure: Measure) -> None:
    def again(number: int) -> None:
        place.handle("chatting").signal("said", number)
        run_until_waiting(place.store, chatting, "a")

    often(measure, again)


@call(
    "Worker.run",
    history="orders",
    growth="linear",
    what="Worker.run, until as many runs of one agent are done",
)
def work(place: Place, measure: Measure) -> None:
    done: list[WorkerEvent] = []

    def note(event: WorkerEvent) -> None:
        if event.kind == "done":
            done.append(event)
        if len(done) > place.length:
            worker.stop()

    worker = Worker(place.store, [finishing], on_event=note)
    measure(lambda: worker.run(signals=False))


@call(
    "Store.run",
    "Run.again",
    history="backlog",
    growth="linear",
    what="Store.run of as many turns, each of which takes one of as many signals",
)
def work_off(place: Place, measure: Measure) -> None:
    measure(lambda: run_until_waiting(place.store, chatting, "a"))


# -- inside ----------------------------------------------------------------------------------------


def _inside(
    *names: str, growth: Growth = "flat", what: str = ""
) -> Callable[[Callable[[Run[Any], int], Any]], None]:
    """A call that a run makes when it has come through its steps."""

    def register(does: Callable[[Run[Any], int], Any]) -> None:
        def measured(place: Place, measure: Measure) -> None:
            def probe(run: Run[Any]) -> None:
                often(measure, lambda number: does(run, number))

            PROBES[:] = [probe]
            place.store.run(probed, "a", place.length)

        label = what or ", ".join(names)
        call(*names, history="going", growth=growth, what=label)(measured)

    return register


@_inside("Run.call", what="Run.call, a step")
def _(run: Run[Any], number: int) -> Any:
    return run.call(look, number)


@_inside("Run.call", what="Run.call, a tool")
def _(run: Run[Any], number: int) -> Any:
    return run.call(pay, number)


@_inside("Run.edit")
def _(run: Run[Any], number: int) -> Any:
    with run.edit("it") as draft:
        draft["n"] = number


@_inside("Run.undo", "Run.redo", what="Run.undo and redo of an edit")
def _(run: Run[Any], number: int) -> Any:
    with run.edit("it") as draft:
        draft["n"] = number
    run.undo()
    run.redo()
    run.undo()


@_inside("Run.checkpoint", "Run.rollback")
def _(run: Run[Any], number: int) -> Any:
    point = run.checkpoint("it")
    with run.edit("it") as draft:
        draft["n"] = number
    run.rollback(point)


@_inside("Run.rollback", growth="linear", what="Run.rollback to before as many steps")
def _(run: Run[Any], number: int) -> Any:
    run.rollback(1)


@_inside("Run.state", "Run.id", "Run.agent", "Run.epoch", "Run.replaying", "Run.doubt", "Run.trace")
def _(run: Run[Any], number: int) -> Any:
    return run.state, run.id, run.agent, run.epoch, run.replaying, run.doubt, run.trace


def open_client() -> str:
    return "open"


@_inside("Run.resource")
def _(run: Run[Any], number: int) -> Any:
    return run.resource(open_client)


@_inside("Run.map")
def _(run: Run[Any], number: int) -> Any:
    return run.map(look, [number, 1])


@_inside("Run.executor", "RunThreads.submit")
def _(run: Run[Any], number: int) -> Any:
    with run.executor(1) as threads:
        return threads.submit(look, number).result()


@_inside("Run.sleep")
def _(run: Run[Any], number: int) -> Any:
    run.sleep(0)


@_inside("Run.wait_for")
def _(run: Run[Any], number: int) -> Any:
    return run.wait_for("never", timeout=0, default=1)


@_inside("Run.ask")
def _(run: Run[Any], number: int) -> Any:
    return run.ask("q?", timeout=0, default=True)


@_inside("Run.select")
def _(run: Run[Any], number: int) -> Any:
    return run.select(late=Timer(0))


@_inside(
    "Run.start", "Run.options", "ChildStarter.start", "Child.result", what="Run.start, Child.result"
)
def _(run: Run[Any], number: int) -> Any:
    return run.start(finishing, f"child-{number}").result(timeout=0, default=None)


@_inside("Child.status", "Child.signal", "Child.cancel", what="Child.signal, Child.cancel")
def _(run: Run[Any], number: int) -> Any:
    child = run.start(finishing, f"told-{number}")
    child.signal("word", number)
    return child.status, child.cancel()


@_inside("Run.now", "Run.random", "Run.uuid", "Run.patched", "Run.progress")
def _(run: Run[Any], number: int) -> Any:
    run.progress("far", 0.5)
    return run.now(), run.random(), run.uuid(), run.patched(f"p{number}"), run.call(look, 1)
