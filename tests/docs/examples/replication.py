"""Examples of docs/reference/replication.md; see tests/docs/reference.py."""

import tempfile
import threading
from datetime import UTC, datetime

import perdure
from perdure.replication import (
    ClosedError,
    DivergedError,
    DoneBeforeError,
    Step,
    follow,
    following,
    migrate,
    promote,
    restore,
)

folder = tempfile.mkdtemp()
source, copy = f"{folder}/agents.db", f"{folder}/copy.db"
with perdure.open(source) as store:
    store.agent("ticket-42").save({"status": "open"}, "opened")
opened = datetime.now(UTC)

# %% following Follower Follower.aside Follower.begin Follower.step Follower.drain Follower.lag Lag
with following(source, copy) as follower:
    follower.drain()  # all that is there
    assert follower.lag().commits == 0
    assert follower.aside == ()  # no agent had trouble

# %% follow Step
with perdure.open(source) as store:
    store.agent("ticket-43").save({"status": "open"}, "opened")
stop = threading.Event()


def look(step: Step) -> None:
    print(step.commits, "commits came")
    stop.set()


with following(source, copy) as follower:
    follow(follower, stop, on_step=look)

# %% ClosedError
with perdure.open(copy) as reading:
    try:
        reading.agent("ticket-42").save({}, "a follower is only read")
    except ClosedError as error:
        print(error.url)  # the store to write to

# %% promote Promoted DoneBeforeError
assert promote(copy).lossless  # closes the source, ships the rest, opens the copy
with perdure.open(copy) as store:
    store.agent("ticket-42").save({"status": "done"}, "done")
try:
    promote(copy)
except DoneBeforeError as error:
    print(error)

# %% migrate Moved
moved = migrate(copy, f"{folder}/new.db")
assert [one.agent for one in moved] == ["ticket-42", "ticket-43"]

# %% restore Restored
restored = restore(f"{folder}/new.db", f"{folder}/as-it-was.db", at=opened)
assert restored.incomplete == ()
with perdure.open(f"{folder}/as-it-was.db") as store:
    assert store.agent("ticket-42").state == {"status": "open"}
    assert store.find("ticket-43") is None

# %% DivergedError Divergence IncompleteError Aside
with perdure.open(f"{folder}/as-it-was.db") as store:
    store.agent("ticket-42").save({"status": "lost"}, "another way")
try:
    with following(f"{folder}/new.db", f"{folder}/as-it-was.db", resync=True) as follower:
        follower.drain()
except DivergedError as error:
    print(error.found)  # each agent, and its first commit that one store has alone
