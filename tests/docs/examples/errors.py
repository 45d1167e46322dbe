"""Examples of docs/reference/errors.md; see tests/docs/reference.py."""

import os
import tempfile
import threading
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import perdure
from perdure.testing import Clock

store = perdure.open("memory://")


@dataclass
class Ticket:
    status: str = "open"


agent = store.agent("ticket-42", Ticket)
with agent.edit("opened") as draft:
    draft.status = "pending"

# %% PerdureError NotFound
try:
    agent.at("before refund")
except perdure.PerdureError as error:  # a NotFound, and so a LookupError, too
    print(error.target, error.problem, error.hint, error.retry)


# %% CallFailed
@perdure.step
def read_page() -> str:
    class PageError(Exception):
        """Nobody finds this class again by its name."""

    raise PageError("it is not there")


@perdure.agent(dict)
def read(run: perdure.Run[dict]) -> str:
    try:
        return read_page()
    except Exception as error:
        failed = error
    run.wait_for("go on", timeout=0.01, default=None)
    return str(failed)


print(store.run(read, "reader"))  # replayed, the step raises a CallFailed that says the same

# %% Conflict
mine, theirs = store.agent("ticket-42", Ticket), store.agent("ticket-42", Ticket)
theirs.save(Ticket("running"), "picked up")
try:
    mine.save(Ticket("closed"), "closed")  # it is not known what they changed
except perdure.Conflict as error:
    print(error)
    mine.update(lambda ticket: setattr(ticket, "status", "closed"), "closed")

# %% Corrupt
folder = tempfile.mkdtemp()
with perdure.open(f"{folder}/damaged.db") as whole:
    for number in range(50):
        whole.agent("ticket-42").save({"text": f"{number} " * 200}, "said")
size = os.path.getsize(f"{folder}/damaged.db")
with open(f"{folder}/damaged.db", "r+b") as file:
    for place in range(20 * 4096 + 300, size, 4096):  # as a failing disk does it
        file.seek(place)
        file.write(b"?" * 64)
try:
    with perdure.open(f"{folder}/damaged.db") as damaged:
        damaged.agent("ticket-42").verify()
except perdure.Corrupt as error:
    print(error)

# %% Drifted
agent.refresh()
agent.state.status = "lost"  # outside edit
try:
    with agent.edit("closed again") as draft:
        draft.status = "closed again"
except perdure.Drifted as error:
    print(error)
    agent.refresh()  # drops it


# %% Fenced RunInterrupted
clock = Clock()
mine_too, standby = clock.open(f"{folder}/two.db"), clock.open(f"{folder}/two.db")
reasons: list[perdure.PerdureError] = []
paused: list[bool] = []


@perdure.agent(dict)
def pause(run: perdure.Run[dict]) -> str:
    if not paused:  # this process stands still for an hour, and the standby takes over
        paused.append(True)
        clock.advance(timedelta(hours=1), alive=False)
        taking_over = threading.Thread(target=standby.run, args=(pause, "ticket-9"))
        taking_over.start()
        taking_over.join()
    try:
        with run.edit("done") as draft:
            draft["done"] = True
    except perdure.RunInterrupted as left:
        reasons.append(left.reason)
        raise  # always: it ends the function, not the run
    return "done by one of them"


assert mine_too.run(pause, "ticket-9") == "done by one of them"
assert isinstance(reasons[0], perdure.Fenced)
mine_too.close()
standby.close()

# %% GuardMismatch
agent.checkpoint("before refund", config={"model": "m-1"})
try:
    agent.at("before refund", config={"model": "m-2"}, strict=True)
except perdure.GuardMismatch as error:
    print(error)


# %% InDoubt TimedOut
@perdure.tool(on_crash="fail", timeout=0.01)
def pay(cents: int) -> str:
    threading.Event().wait(0.1)
    return "paid"


@perdure.agent(dict)
def pay_once(run: perdure.Run[dict]) -> str:
    try:
        return pay(500)
    except perdure.InDoubt:
        found = "nobody knows whether it is paid"
    try:
        run.ask("Is it?", timeout=0.01)
    except perdure.TimedOut:
        found += ", and nobody says so"
    return found


assert store.run(pay_once, "payer").endswith("nobody says so")


# %% NeedsAttention
@perdure.tool(on_crash="ask", timeout=0.01)
def mail(to: str) -> None:
    threading.Event().wait(0.1)


@perdure.agent(dict)
def inform(run: perdure.Run[dict]) -> None:
    mail("ada")


try:
    store.run(inform, "mailer")
except perdure.NeedsAttention as error:
    print(error.hint)  # the commands that settle it

# %% NotAStore
Path(folder, "notes.txt").write_text("no store at all, but a text of some length" * 100)
try:
    perdure.open(f"{folder}/notes.txt")
except perdure.NotAStore as error:
    print(error)


# %% OutsideRun
@perdure.agent(dict)
def lose_the_run(run: perdure.Run[dict]) -> str:
    thread = threading.Thread(target=call_it)  # `run.executor()` gives threads of the run
    thread.start()
    thread.join()
    return said[-1]


said: list[str] = []


def call_it() -> None:
    try:
        mail("ada")
    except perdure.OutsideRun as error:
        said.append(error.problem)


print(store.run(lose_the_run, "loser"))


# %% RunFailed
@perdure.agent(dict)
def never(run: perdure.Run[dict]) -> None:
    run.wait_for("nothing")


store.start(never, "ticket-9").cancel("a mistake")
try:
    store.run(never, "ticket-9")
except perdure.RunFailed as error:
    print(error)

# %% SchemaError
try:
    with agent.edit("a number") as draft:
        draft.status = 5  # type: ignore[assignment]
except perdure.SchemaError as error:
    print(error)  # state.status: …

# %% SharedValue
notes = store.agent("notes")
tags = ["urgent"]
try:
    notes.save({"mine": tags, "yours": tags}, "shared")
except perdure.SharedValue as error:
    print(error)

# %% StoreUnavailable
closed = perdure.open("memory://")
closed.close()
try:
    closed.agents()
except perdure.StoreUnavailable as error:
    print(error, error.outcome)

# %% Unstorable
try:
    notes.save({"lock": [threading.Lock()]}, "a lock")
except perdure.Unstorable as error:
    print(error)  # state.lock[0]: …; it is a TypeError, too

# %% UnsupportedFormat
try:
    agent.verify()
except perdure.UnsupportedFormat as error:
    print(error.seq)  # the commit that only a newer version can read

# %% UnknownZone
try:
    print(notes.state.get("at"))
except perdure.UnknownZone as error:
    print(error.zone)  # install tzdata: pip install tzdata

store.close()
