"""Examples of docs/reference/testing.md; see tests/docs/reference.py."""

import tempfile
from datetime import timedelta
from pathlib import Path

import perdure
from perdure.storage.capabilities import Backend
from perdure.storage.memory.backend import MemoryBackend
from perdure.testing import (
    BackendContract,
    Clock,
    Ending,
    RunEnding,
    boundary,
    kill_at_every_boundary,
    kill_program_at_every_boundary,
    play,
    recorded_runs,
    replay,
    run_until_waiting,
    run_with_kills,
)

paid: list[int] = []  # the bank's books: the world


@perdure.tool(on_crash="ask")
def pay(cents: int) -> str:
    paid.append(cents)
    return f"paid {cents}"


@perdure.agent(dict)
def settle_bill(run: perdure.Run[dict], cents: int) -> str:
    run.sleep(timedelta(days=30))
    if not run.ask(f"Pay {cents}?", timeout=timedelta(days=7), default=False):
        return "not paid"
    return pay(cents)


# %% play Played PlayedCall
played = play(settle_bill, 500, answers=[True], tools={pay: lambda cents: "paid by a stand-in"})
assert played.result == "paid by a stand-in" and paid == []
assert [(call.kind, call.name, call.arguments) for call in played.calls] == [
    ("tool", "pay", "cents=500")
]


# %% kill_at_every_boundary RunEnding PhysicalCall
def look_at_the_books(end: RunEnding) -> None:
    assert paid == [500], f"paid once, killed at {end.killed_at}"
    assert [call.place for call in end.calls if call.kind == "tool"] == ["pay#1"]


endings = kill_at_every_boundary(
    settle_bill, 500, answers=[True], before=lambda folder: paid.clear(), check=look_at_the_books
)
assert {"", "before tool 1", "after tool 1"} <= {end.killed_at for end in endings}


# %% boundary
def write_twice(folder: Path) -> str:
    (folder / "one").write_text("1")
    boundary("between two files")  # outside of such tests it does nothing
    (folder / "two").write_text("2")
    return "written"


# %% kill_program_at_every_boundary
def is_whole(end: Ending) -> None:
    assert end.result == "written" and (end.folder / "two").exists()


trials = Path(tempfile.mkdtemp())
assert kill_program_at_every_boundary(write_twice, is_whole, trials) == 1

# %% run_with_kills Ending
end = run_with_kills(write_twice, Path(tempfile.mkdtemp()), ["at between two files 1"])
assert end.killed_at == ["at between two files 1"] and end.error is None

# %% Clock Clock.now Clock.advance Clock.open Clock.open_async
clock = Clock()
before = clock.now
assert clock.advance(timedelta(hours=1)) == before + timedelta(hours=1)
store = clock.open("memory://")  # `clock.open_async` is the same for coroutines

# %% run_until_waiting
handle = run_until_waiting(store, settle_bill, "ticket-42", 500)
assert handle.status == "waiting"
clock.advance(timedelta(days=30))
run_until_waiting(store, settle_bill, "ticket-42", 500)
assert [asked.question for asked in handle.questions()] == ["Pay 500?"]
clock.advance(timedelta(days=7))
assert store.run(settle_bill, "ticket-42", 500) == "not paid"

# %% recorded_runs
assert recorded_runs(store, settle_bill) == ["ticket-42/settle_bill/main"]  # or of an export

# %% replay Replayed Replayed.check
assert replay(store, settle_bill).check() == "not paid"


# %% Difference
@perdure.agent(dict, name="settle_bill")
def hastier(run: perdure.Run[dict], cents: int) -> str:
    run.sleep(timedelta(days=30))
    return pay(cents)


drift = replay(store, hastier).drift
assert drift is not None and drift.now == "tool pay(cents=500)"
assert drift.recorded.startswith("wait ask#1")
store.close()


# %% BackendContract
class TestMine(BackendContract):
    durable = False  # what is committed is gone when it is closed

    def open(self, place: Path) -> Backend:
        return MemoryBackend()  # yours
