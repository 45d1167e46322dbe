"""Examples of docs/reference/runs.md; see tests/docs/reference.py."""

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from datetime import timedelta

import perdure
from perdure.testing import run_until_waiting

store = perdure.open("memory://")


# %% step
@perdure.step(retry=3, timeout=timedelta(minutes=1))
def look_up(customer: str) -> list[str]:
    return [f"invoice of {customer}"]


assert look_up("c-7") == ["invoice of c-7"]  # outside a run it is just the function

# %% tool
refunds: dict[str, str] = {}  # the bank's books: the world


def find_refund(invoice: str) -> object:
    key = perdure.idempotency_key()
    return "refunded" if key in refunds else perdure.NOT_DONE


@perdure.tool(on_crash="probe", probe=find_refund)
def refund(invoice: str) -> str:
    refunds[perdure.idempotency_key()] = invoice
    return "refunded"


# %% agent
@perdure.agent(dict)
def support(run: perdure.Run[dict], customer: str) -> str:
    (invoice,) = look_up(customer)
    return refund(invoice)


assert store.run(support, "ticket-42", "c-7") == "refunded"


# %% Run Run.id Run.agent Run.epoch Run.replaying
@perdure.agent
def introduce(run: perdure.Run[dict]) -> str:
    assert run.epoch >= 1 and not run.replaying
    return f"{run.id} on {run.agent}"


assert store.run(introduce, "ticket-42") == "ticket-42/introduce/main on ticket-42"


# %% Run.state Run.edit
@perdure.agent(dict)
def count(run: perdure.Run[dict], upto: int) -> int:
    for number in range(upto):
        with run.edit(f"counted {number}") as draft:
            draft["count"] = draft.get("count", 0) + 1
    return int(run.state["count"])


assert store.run(count, "counter", 3) == 3


# %% Run.checkpoint Run.rollback
@perdure.agent(dict)
def try_ways(run: perdure.Run[dict], ways: list[str]) -> str:
    before = run.checkpoint("before trying")
    for way in ways:
        with run.edit("tried") as draft:
            draft["way"], draft["tried"] = way, True
        if way != "dead end":
            return way
        run.rollback(before)
    return "none"


assert store.run(try_ways, "maze", ["dead end", "left"]) == "left"


# %% Run.undo Run.redo
@perdure.agent(dict)
def reconsider(run: perdure.Run[dict]) -> list[str]:
    with run.edit("chose") as draft:
        draft["choice"] = "blue"
    undone = run.undo()
    assert undone.commit.cause.kind == "undo" and "choice" not in run.state
    run.redo()
    return [run.state["choice"]]


assert store.run(reconsider, "paint") == ["blue"]


# %% Run.call
@perdure.agent(dict)
def measure(run: perdure.Run[dict], text: str) -> int:
    return run.call(len, text)  # recorded as a step


assert store.run(measure, "ruler", "four") == 4


# %% Run.map
@perdure.agent(dict)
def look_up_all(run: perdure.Run[dict]) -> int:
    return len(run.map(look_up, ["c-1", "c-2", "c-3"], limit=2))


assert store.run(look_up_all, "survey") == 3


# %% Run.executor
@perdure.agent(dict)
def side_by_side(run: perdure.Run[dict]) -> list[str]:
    with run.executor(limit=2) as threads:
        both: list[Future[list[str]]] = [threads.submit(look_up, name) for name in ("a", "b")]
    return [invoice for one in both for invoice in one.result()]


assert store.run(side_by_side, "survey") == ["invoice of a", "invoice of b"]


# %% Run.sleep Run.now Run.random Run.uuid
@perdure.agent(dict)
def take_notes(run: perdure.Run[dict]) -> bool:
    before = run.now()
    run.sleep(timedelta(milliseconds=20))
    return run.now() > before and 0 <= run.random() < 1 and run.uuid() != run.uuid()


assert store.run(take_notes, "notes")


# %% Run.wait_for RunHandle.signal
@perdure.agent(dict)
def collect(run: perdure.Run[dict]) -> int:
    cents: int = run.wait_for("cents", schema=int)
    tip: int = run.wait_for("tip", timeout=0.02, default=0)
    return cents + tip


collecting = store.start(collect, "till")
assert collecting.signal("cents", 500, key="coin-1", by="ada")
assert not collecting.signal("cents", 500, key="coin-1", by="ada")  # it came already
assert store.run(collect, "till") == 500


# %% Run.ask RunHandle.questions RunHandle.answer
@perdure.agent(dict)
def approve(run: perdure.Run[dict], cents: int) -> bool:
    answer: bool = run.ask(f"Refund {cents} cents?", key=f"refund {cents}")
    return answer


asking = store.start(approve, "ticket-7", 500)
person = threading.Thread(target=store.run, args=(approve, "ticket-7", 500))
person.start()  # in most programs: a worker, in another process
while not asking.questions():
    threading.Event().wait(0.01)
(question,) = asking.questions()
assert question.question == "Refund 500 cents?"
asking.answer(True, to=question, by="ada")
person.join()
assert asking.result() is True


# %% Run.select Signal Timer Ask
@perdure.agent(dict)
def wait_for_any(run: perdure.Run[dict]) -> str:
    first = run.select(
        stop=perdure.Signal("stop"), yes=perdure.Ask("Go on?"), late=perdure.Timer(0.02)
    )
    return first.name


assert store.run(wait_for_any, "chooser") == "late"


# %% Run.start Run.options
@perdure.agent(dict)
def double(run: perdure.Run[dict], number: int) -> int:
    return number * 2


@perdure.agent(dict)
def parent(run: perdure.Run[dict]) -> int:
    one = run.start(double, "child-1", 10)
    two = run.options(key="second", let_live=True).start(double, "child-2", 11)
    return one.result() + two.result(timeout=timedelta(hours=1))


worker = perdure.Worker(store, [double])
working = threading.Thread(target=worker.run)
working.start()
assert store.run(parent, "parent") == 42
worker.stop()
working.join()


# %% Run.again
@perdure.agent(dict)
def endless(run: perdure.Run[dict], left: int) -> str:
    return run.again(left - 1) if left else "the last turn"


assert store.run(endless, "turns", 2) == "the last turn"


# %% Run.patched
@perdure.agent(dict)
def price(run: perdure.Run[dict]) -> int:
    return 530 if run.patched("fee") else 500  # runs from before the fee go on without it


assert store.run(price, "shop") == 530


# %% Run.progress RunHandle RunHandle.id RunHandle.info RunHandle.status RunHandle.report
@perdure.agent(dict)
def work(run: perdure.Run[dict]) -> str:
    run.progress("half of it", 0.5)
    return "done"


store.run(work, "worker")
handle = store.handle("worker/work/main")
assert (handle.id, handle.status, handle.info.result) == ("worker/work/main", "done", "done")
assert [note.text for note in handle.report().notes] == ["half of it"]

# %% RunHandle.result
assert handle.result() == "done"
try:
    store.start(work, "nobody runs this").result(timeout=0.01)
except perdure.TimedOut as error:
    print(error)

# %% RunHandle.why RunHandle.cancel
waiting = store.start(work, "another")
print(waiting.why().why)  # nobody began it; `ways` says what to do
waiting.cancel("not needed")
try:
    store.run(work, "another")
except perdure.RunFailed as error:
    print(error)  # cancelled, and why


# %% RunHandle.effects RunHandle.settle
@perdure.tool(on_crash="ask", timeout=0.01)
def slow_mail(to: str) -> str:
    threading.Event().wait(0.1)
    return "sent"


@perdure.agent(dict)
def inform(run: perdure.Run[dict]) -> str:
    return slow_mail("ada")


try:
    store.run(inform, "mailer")
except perdure.NeedsAttention as stopped:
    print(stopped)  # nobody knows whether the mail was sent
informing = store.handle("mailer/inform/main")
(call,) = informing.effects()
assert (call.place, call.state) == ("slow_mail#1", "in doubt")
informing.settle(call.place, done="sent", by="ada")
assert store.run(inform, "mailer") == "sent"

# %% RunHandle.fork RunHandle.retry
done = store.handle("ticket-42/support/main")
what_if = done.fork("refund#1", branch="what-if", effects="live")
assert store.options(key=what_if.info.key).run(support, "ticket-42", "c-7") == "refunded"
assert len(refunds) == 2  # made again, under another key
done.retry("look_up#1", effects="reuse")
assert store.run(support, "ticket-42", "c-7") == "refunded"
assert len(refunds) == 2  # the outcome that it had was taken over


# %% RunHandle.resume
prices = {"book": 500}


@perdure.agent(dict)
def sell(run: perdure.Run[dict]) -> int:
    cents = run.call(int, prices["book"])
    paid: int = run.wait_for("paid", schema=int)
    return paid - cents


selling = run_until_waiting(store, sell, "shop")
selling.signal("paid", 500)
prices["book"] = 530  # as a bad deploy does it: the run recorded another argument
try:
    store.run(sell, "shop")
except perdure.NeedsAttention as stopped:
    print(stopped)
prices["book"] = 500  # put right
selling.resume()
assert store.run(sell, "shop") == 0

# %% Worker Worker.can_run Worker.functions Worker.running Worker.run Worker.stop
store.options(queue="high").start(double, "number", 21)
assert perdure.Worker.can_run(double) and not perdure.Worker.can_run(print)
events: list[str] = []
worker = perdure.Worker(store, [double], queues=["high"], on_event=lambda e: events.append(e.kind))
assert list(worker.functions) == ["double"]
working = threading.Thread(target=worker.run)
working.start()
assert store.handle("number/double/main").result(timeout=60) == 42
worker.stop()  # it drains
working.join()
assert not worker.running and {"ready", "started", "done"} <= set(events)


# %% Retry
@perdure.step(retry=perdure.Retry(attempts=3, on=ConnectionError, first=0.01))
def flaky() -> str:
    tried.append(1)
    if len(tried) < 3:
        raise ConnectionError("not yet")
    return "connected"


tried: list[int] = []


@perdure.agent(dict)
def connect(run: perdure.Run[dict]) -> str:
    return flaky()


assert store.run(connect, "network") == "connected"

# %% NOT_DONE
with_books = perdure.tool(on_crash="probe", probe=lambda order: perdure.NOT_DONE)(print)


# %% idempotency_key fencing_token heartbeat saved_progress
@perdure.tool(on_crash="retry", heartbeat_timeout=timedelta(minutes=1))
def copy(rows: int) -> str:
    begin = perdure.saved_progress(0)  # what an attempt before this one saved
    for row in range(begin, rows):
        perdure.heartbeat(row + 1)
    return f"{perdure.idempotency_key()} under {perdure.fencing_token()}"


@perdure.agent(dict)
def move(run: perdure.Run[dict]) -> bool:
    key = copy(3)
    return key == copy(3)


assert store.run(move, "mover") is False  # each call has a key of its own


# %% Run.compensate
@perdure.tool(on_crash="retry")
def give_back(payment: str, cents: int) -> str:
    return f"gave back {cents} of {payment}"


@perdure.tool(on_crash="fail", compensate=give_back)
def take(cents: int) -> str:
    return "payment-9"


@perdure.agent(dict)
def take_back(run: perdure.Run[dict]) -> list[str]:
    take(500)
    return run.compensate()


assert store.run(take_back, "order-7") == ["take#1"]


# %% resource Run.resource Ticket Ticket.value Ticket.keep lifespan
@perdure.resource(check=lambda session: session.startswith("session"))
def bank_session(ticket: perdure.Ticket) -> Iterator[str]:
    if ticket.value is None:  # the first time in this run
        ticket.keep(perdure.lifespan("the bank"))  # stored: what it takes to open it again
    yield f"session at {ticket.value}"
    # closed: the run waits, has ended, or is left


@perdure.step
def ask_bank() -> str:
    return bank_session.get()


@perdure.step
def read(page: perdure.types.Resource[str]) -> str:
    return page.get()


@perdure.agent(dict)
def look_at_bank(run: perdure.Run[dict], user: str) -> list[str]:
    page = run.resource(lambda: f"page of {user}", name="page")  # opened where `read` uses it
    return [ask_bank(), read(page)]


assert store.run(look_at_bank, "looking", "ada") == ["session at the bank", "page of ada"]


# %% save_progress
@perdure.tool(on_crash="probe", probe=lambda cents: perdure.saved_progress() or perdure.NOT_DONE)
def wire(cents: int) -> str:
    perdure.save_progress("tx-1")  # durable before the transfer: its probe is given it
    return "tx-1"


# %% save_progress_async
@perdure.tool(on_crash="probe", probe=lambda cents: perdure.saved_progress() or perdure.NOT_DONE)
async def wire_async(cents: int) -> str:
    await perdure.save_progress_async("tx-1")
    return "tx-1"


# %% sql_transaction transaction
hotel = perdure.sql_transaction(lambda: sqlite3.connect("rooms.sqlite"))


@perdure.tool(transaction=hotel)
def book(guest: str) -> str:
    rows = perdure.transaction().connection
    rows.execute("CREATE TABLE IF NOT EXISTS bookings (guest TEXT)")
    rows.execute("INSERT INTO bookings VALUES (?)", (guest,))
    return f"a room for {guest}"


@perdure.agent(dict)
def travel(run: perdure.Run[dict]) -> list[str]:
    return [wire(500), book("Ada")]


assert store.run(travel, "trip-1") == ["tx-1", "a room for Ada"]


# %% unrecorded
@perdure.agent(dict)
def look_quickly(run: perdure.Run[dict]) -> int:
    return len(perdure.unrecorded(look_up)("c-7"))  # called anew on each replay


assert store.run(look_quickly, "peek") == 1
assert store.handle("peek/look_quickly/main").report().events[1].kind == "finished"

store.close()
