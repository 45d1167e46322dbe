"""What must be there after a power loss: all that was acknowledged, once, and every log whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from perdure.store import Store
from tests.chaos.world import World
from tests.powerloss.postgres import clients
from tests.powerloss.postgres.clients import PAYMENTS, SIGNALS, Acknowledged


def broken(store: Store, folder: Path, acknowledged: Sequence[Acknowledged]) -> list[str]:
    """What does not hold, in words. They may go on meanwhile."""
    return [
        *_edits(store, [one for one in acknowledged if one.kind == "edit"]),
        *_runs(store, folder, acknowledged),
    ]


def broken_at_the_end(
    store: Store, folder: Path, acknowledged: Sequence[Acknowledged]
) -> list[str]:
    """The same, when all have come to their end."""
    found = broken(store, folder, acknowledged)
    for run in store.runs():
        if run.status != "done":
            found.append(f"{run.id} is {run.status}: {run.problem}")
    signals = [one.number for one in acknowledged if one.kind == "signal"]
    for number in range(max(signals, default=-1) // SIGNALS + 1):
        heard = store.agent(clients.listener(number * SIGNALS)).state.get("heard")
        wanted = list(range(number * SIGNALS, (number + 1) * SIGNALS))
        if heard != wanted:
            found.append(f"{clients.listener(number * SIGNALS)} heard {heard}, not {wanted}")
    payers = [one.number for one in acknowledged if one.kind == "done"]
    for agent in map(clients.payer, payers):
        ops = {effect.op for effect in World(folder).effects(agent)}
        if ops != set(PAYMENTS):
            found.append(f"{agent} has done {sorted(ops)} to the world")
    for info in store.agents():
        store.agent_of(info).verify()
    left = store._context.backend.inbox()
    return [*found, *(f"a message is left over: {message}" for message in left)]


def _edits(store: Store, acknowledged: Iterable[Acknowledged]) -> Iterator[str]:
    """Each acknowledged edit is there, and each once; so are those that nobody heard of."""
    numbers: dict[str, set[int]] = {}
    for one in acknowledged:
        numbers.setdefault(clients.writer(one.which, one.number), set()).add(one.number)
    for name, wanted in numbers.items():
        if store.find(name) is None:
            yield f"{name} is lost, with {len(wanted)} acknowledged edits"
            continue
        agent = store.agent(name)
        commits = list(agent.log())
        there = [int((commit.cause.key or "")[1:]) for commit in commits[1:]]
        if missing := wanted - set(there):
            yield f"{name}: acknowledged edits are lost: {sorted(missing)}"
        first = min(there, default=0) // clients.EDITS * clients.EDITS
        if there != list(range(first, first + len(there))):
            yield f"{name}: the log has the keys {there}"
        if agent.at(commits[-1].seq).state["done"] != there:
            yield f"{name}: its state is not that of its log"
        agent.verify()


def _runs(store: Store, folder: Path, acknowledged: Sequence[Acknowledged]) -> Iterator[str]:
    """Runs that were asked for are there, results that were told too; and whatever was done to the
    world was intended before, and was done once."""
    effects = {
        clients.payer(one.number): World(folder).effects(clients.payer(one.number))
        for one in acknowledged
        if one.kind == "start"
    }
    runs = {run.agent: run for run in store.runs()}
    for agent in effects.keys() - runs.keys():
        yield f"the run of {agent} was acknowledged, and is lost"
    for number in {one.number for one in acknowledged if one.kind == "done"}:
        run = runs.get(clients.payer(number))
        if run is not None and (run.status, run.result) != ("done", list(PAYMENTS)):
            yield f"{run.id} was done, and is {run.status}: {run.result}"
    for agent in effects.keys() & runs.keys():
        keys = {effect.key for effect in store.handle(runs[agent].id).effects()}
        for effect in effects[agent]:
            if effect.key not in keys:
                yield f"{agent} did {effect.op}, and its log has no intent of that"
        for op, times in Counter(effect.op for effect in effects[agent]).items():
            if times > 1 and op != PAYMENTS[0]:
                yield f"{agent} did {op} {times} times"
