"""Examples of docs/reference/state.md; see tests/docs/reference.py."""

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import perdure
from perdure.testing import run_until_waiting


@dataclass
class Message:
    role: str
    content: str


@dataclass
class Ticket:
    customer: str
    status: str = "pending"
    tries: int = 0
    messages: list[Message] = field(default_factory=list)


@perdure.agent(dict)
def greet(run: perdure.Run[dict], name: str) -> str:
    return f"Hello {name}"


# %% open Store Store.url
with perdure.open("memory://", durability="group") as short:  # closed when the block ends
    assert short.url.startswith("memory://")

store = perdure.open("memory://")  # a path, in most programs: perdure.open("agents.db")

# %% Store.close
other = perdure.open("memory://")
other.close()
other.close()  # nothing is left to do

# %% Store.agent
agent = store.agent("ticket-42", Ticket, initial=Ticket(customer="c-7"))
assert not agent.exists  # it is created by its first commit
with agent.edit("opened") as draft:
    draft.messages.append(Message("user", "Where is my money?"))
assert store.agent("notes").state == {}  # without a schema: a dict

# %% Store.agents
store.agent("ticket-43").save({"status": "open"}, "opened")
page = store.agents("ticket-", limit=1)
assert [info.name for info in page] == ["ticket-42"]
assert [info.name for info in store.agents("ticket-", after=page[-1].name)] == ["ticket-43"]

# %% Store.find Store.delete
found = store.find("ticket-43")
assert found is not None and not found.deleted
store.delete("ticket-43", purge=True)
found = store.find("ticket-43")
assert found is not None and found.deleted
assert store.find("nobody") is None

# %% Store.incarnations Store.origins
assert [one.deleted for one in store.incarnations("ticket-43")] == [True]
(ticket,) = store.incarnations("ticket-42")
assert store.origins(ticket) == []  # it is no copy of a LangGraph thread

# %% Store.agent_of
info = store.find("ticket-42")
assert info is not None
assert store.agent_of(info).state["status"] == "pending"

# %% Store.export_log Store.import_log
entries = list(store.export_log(info))
with perdure.open("memory://") as elsewhere:
    verified = elsewhere.import_log(entries, root=agent.verify().root)
    assert verified.commits == len(entries)
    assert elsewhere.agent("ticket-42", Ticket).state == agent.state

# %% Store.run
assert store.run(greet, "guest-1", "Ada") == "Hello Ada"
assert store.run(greet, "guest-1", "Ada") == "Hello Ada"  # recorded: it is not called again
try:
    store.run(greet, "guest-1", "Bob")
except perdure.Conflict as error:
    print(error)  # a run of that key has other arguments

# %% Store.start Store.handle
handle = store.start(greet, "guest-2", "Bob")  # a worker will run it
assert handle.status == "pending"
assert store.handle(handle.id).info.agent == "guest-2"

# %% Store.options
again = store.options(key="message-18", deadline=timedelta(hours=1))
assert again.run(greet, "guest-1", "Bob") == "Hello Bob"

# %% Store.runs
assert [run.key for run in store.runs("guest-1")] == ["main", "message-18"]
assert [run.agent for run in store.runs(unfinished=True)] == ["guest-2"]
assert len(store.runs(status=["done"], function="greet", limit=1, newest_first=True)) == 1


# %% Store.questions
@perdure.agent(dict)
def release(run: perdure.Run[dict]) -> bool:
    answer: bool = run.ask("Release?", data={"version": "2.1"}, expires=3600)
    return answer


run_until_waiting(store, release, "site")
(asked,) = store.questions(limit=100)
assert (asked.agent, asked.question, asked.data) == ("site", "Release?", {"version": "2.1"})
store.handle(asked.run).answer(True, to=asked, by="ada")
assert store.run(release, "site") is True

# %% Store.alive
executor = agent.commit(1).executor
assert store.alive(executor)

# %% Store.checkpoint_all
with perdure.open("memory://") as fleet:
    fleet.agent("robot-1").save({"at": "the dock"}, "docked")
    named = fleet.checkpoint_all("before the deploy", config={"release": 7})
    assert [*named.points] == ["robot-1"] and not named.failed
    assert fleet.agent("robot-1").at("before the deploy").state == {"at": "the dock"}

# %% Store.purge
purged = store.purge()  # of those deleted with purge=True
assert [gone.name for gone in purged.agents] == ["ticket-43"]

# %% Store.shrink Store.check_pages Store.sizes Store.flush
store.shrink()
store.check_pages()
assert store.sizes("ticket-42").commits == agent.seq
store.flush()

# %% Agent Agent.id Agent.branch_name Agent.seq Agent.exists
assert (agent.id, agent.branch_name) == ("ticket-42", "main")
assert agent.exists and agent.seq == 2  # created, then opened

# %% Agent.state Agent.refresh
theirs = store.agent("ticket-42", Ticket)  # as another process has it
theirs.save(Ticket("c-7", "running", 0, agent.state.messages), "picked up")
assert agent.state.status == "pending"  # as last read
assert agent.refresh().status == "running"

# %% Agent.follow
agent.follow()
with theirs.edit("a try") as draft:
    draft.tries += 1
followed = agent.follow()
assert followed is not None
assert [commit.cause.what for commit in followed] == ["a try"]

# %% Agent.edit
with agent.edit("answered", key="message-1", tags=["draft"]) as draft:
    draft.messages.append(Message("agent", "Which invoice?"))
with agent.edit("answered", key="message-1", tags=["draft"]) as draft:  # done already
    draft.messages.append(Message("agent", "Which invoice?"))
assert len(agent.state.messages) == 2

# %% Agent.update
agent.update(lambda ticket: perdure.increment(ticket, "tries"), "another try")
assert agent.state.tries == 2

# %% Agent.save
ticket = Ticket("c-7", "completed", 2, agent.state.messages)
commit = agent.save(ticket, "done")
assert commit is not None and len(commit.delta) == 1  # what differs is stored
assert agent.save(ticket, "done") is None

# %% Agent.drift
agent.state.status = "lost"  # outside edit: this is not stored
assert [found.path for found in agent.drift()] == ["state.status"]
agent.refresh()

# %% Agent.log Agent.commit
assert [commit.cause.what for commit in agent.log(newest_first=True)][:2] == ["done", "another try"]
first = agent.commit(2)
assert (first.seq, first.cause.kind, first.cause.what) == (2, "edit", "opened")

# %% Agent.at
assert agent.at(2).state.status == "pending"
assert agent.at(first.at).commit.seq == 2  # what was at a moment

# %% Agent.diff
assert ("state.status", "changed") in [(c.path, c.kind) for c in agent.diff(2, "main")]

# %% Agent.verify
root = agent.verify().root  # keep it elsewhere
assert agent.verify(anchor=root).commits == agent.seq

# %% Agent.trim
old = store.agent("ticket-41")
for status in ("open", "running", "done"):
    old.save({"status": status}, status)
trimmed = old.trim(timedelta(0))  # what was changed before now is gone; the state stays
assert trimmed.removed > 0 and old.verify().trimmed == trimmed.removed
assert store.agent("ticket-41").state == {"status": "done"}

# %% Agent.checkpoint Agent.checkpoints
agent.checkpoint("before refund", config={"model": "m-1"}, dependencies=["msgspec"])
assert [point.name for point in agent.checkpoints()] == ["before refund"]
assert agent.at("before refund", config={"model": "m-2"}).mismatches != ()

# %% Agent.fork Agent.branches Agent.branch Agent.delete_branch
what_if = agent.fork("what-if", at="before refund")
with what_if.edit("another way") as draft:
    draft.status = "refunded"
assert agent.branch("what-if").state.status == "refunded"
agent.fork("dead end")
agent.delete_branch("dead end")
assert [branch.name for branch in agent.branches() if branch.deleted] == ["dead end"]

# %% Agent.rollback Agent.adopt
moved = agent.rollback(2)
assert (agent.state.status, moved.commit.cause.kind) == ("pending", "rollback")
agent.adopt("what-if")
assert agent.state.status == "refunded"

# %% Agent.undo Agent.redo
with agent.edit("closed") as draft:
    draft.status = "closed"
agent.undo()
assert agent.state.status == "refunded"
agent.redo()
assert agent.state.status == "closed"

# %% increment
with agent.edit("two at once") as draft:
    perdure.increment(draft, "tries", by=2)

# %% move
with agent.edit("the answer first") as draft:
    perdure.move(draft.messages, 1, 0)
assert agent.state.messages[0].content == "Which invoice?"


# %% Schema
@dataclass
class Account:
    cents: int


def never_negative(account: Account) -> bool:
    return account.cents >= 0


accounts = perdure.Schema(
    Account,
    id="account",
    version=2,
    migrations={1: lambda old: {"cents": old["euros"] * 100}},
    invariants=[never_negative],
)
account = store.agent("account-1", accounts, initial=Account(500))
try:
    with account.edit("spent") as spent:
        spent.cents -= 600
except perdure.SchemaError as error:
    print(error)  # never_negative does not hold


# %% invariant
@perdure.invariant("messages")
def short_enough(after: Ticket) -> bool:  # not asked about other fields
    return len(after.messages) <= 100


limited = perdure.Schema(Ticket, invariants=[short_enough])

# %% transitions
machine = perdure.transitions("status", {"pending": {"running"}, "running": {"completed"}})
strict = store.agent("ticket-44", perdure.Schema(Ticket, invariants=[machine]), initial=Ticket("c"))
try:
    with strict.edit("too early") as draft:
        draft.status = "completed"
    with strict.edit("gone back") as draft:
        draft.status = "pending"
except perdure.SchemaError as error:
    print(error)


# %% Ephemeral
@dataclass
class Connected:
    name: str
    client: perdure.Ephemeral[Any] = None  # lives in memory only


connected = store.agent("connected", Connected, initial=Connected("c-1"))
with connected.edit("connected") as held:
    held.client = object()  # commits nothing
with connected.edit("named") as held:
    held.name = "c-2"
assert connected.state.client is not None
assert store.agent("connected", Connected).state.client is None

# %% SnapshotPolicy
policy = perdure.SnapshotPolicy(every_commits=100, on={"checkpoint", "batch done"})
with perdure.open("memory://", snapshots=policy) as often:
    often.agent("ticket-1").save({"status": "open"}, "batch done")
    assert often.sizes("ticket-1").snapshots == 1

# %% CheckpointPolicy
named_often = perdure.CheckpointPolicy(every_commits=100, every_seconds=600, at_exit=True)
with perdure.open("memory://", checkpoints=named_often) as watched:
    assert watched.agents() == []

# %% GroupPolicy
twice_a_second = perdure.GroupPolicy(every_commits=1000, every_seconds=0.5)
with perdure.open("memory://", durability="group", group=twice_a_second) as grouped:
    grouped.agent("ticket-1").save({"status": "open"}, "opened")

# %% Guards
stopping = perdure.Guards(environment=["REGION"], on_change="stop")
with perdure.open("memory://", guards=stopping) as where_it_matters:
    assert where_it_matters.agents() == []

# %% Cause
cause = agent.commit(agent.seq).cause
assert (cause.kind, cause.what) == ("edit", "the answer first")

# %% MISSING
with agent.edit("thanked") as draft:
    draft.messages.append(Message("user", "Thanks"))
(added,) = agent.diff(agent.seq - 1, agent.seq)
assert added.kind == "added" and added.before is perdure.MISSING

# %% backup
with perdure.open("in-use.db") as in_use:
    in_use.agent("ticket-1").save({"status": "open"}, "opened")
    copied = perdure.backup("in-use.db", "copy.db")
    assert copied.agents == 1 and Path(copied.path).name == "copy.db"
with perdure.open("copy.db") as restored:
    assert restored.agent("ticket-1").state == {"status": "open"}
for file in (*Path().glob("in-use.db*"), *Path().glob("copy.db*")):
    file.unlink()

# %% repair
with perdure.open("to-mend.db") as mended:
    mended.agent("ticket-1").save({"status": "open"}, "opened")
assert all(log.damages == () for log in perdure.repair("to-mend.db"))  # all was whole

for file in Path().glob("to-mend.db*"):
    file.unlink()
store.close()
