"""What is promised, held against what happened in a simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from perdure.errors import PerdureError
from perdure.model import FINISHED, AgentInfo, Commit, Message, RunInfo
from perdure.storage.capabilities import RunQuery
from perdure.store import Store
from tests.simulation import logs
from tests.simulation.linearizable import check
from tests.simulation.programs import FAILING, Op

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation


class Audit:
    """See the module. Reads through a store of its own, to which nothing happens."""

    def __init__(self, simulation: Simulation, store: Store) -> None:
        self._simulation = simulation
        self._expected = simulation.expected
        self._world = simulation.world
        self._store = store
        self._backend = store.runner.context.backend
        self._logs: dict[str, list[Commit]] = {}
        self._whole: list[Commit] = []
        """Of all branches: a run that had not begun may be ended beside main."""

    # -- has everything come to rest? --------------------------------------------------------

    def unsettled(self) -> list[str]:
        """Runs that are neither over, nor wait for what has really not come (I8)."""
        rows = {row.id: row for row in self._backend.runs()}
        found = [
            f"run {row.id} is {row.status}: {why}"
            for row in rows.values()
            if (why := self._not_at_rest(row, rows))
        ]
        for message in self._backend.inbox(kind="start"):
            if not self._queued(message.agent, None, rows):
                found.append(f"run {message.run} was asked for and is not begun")
        return found

    def _not_at_rest(self, row: RunInfo, rows: Mapping[str, RunInfo]) -> str:
        if row.status in FINISHED:
            return ""
        if row.status == "needs_attention":
            return "nobody helps it" if row.problem else "it does not say why"
        if row.status != "waiting":
            return "" if self._queued(row.agent, row, rows) else "nobody goes on with it"
        news = [m for m in self._backend.inbox(row.id) if m.no > row.seen or m.kind == "cancel"]
        if news:
            return f"{news[0].kind} {news[0].name} is there for it"
        if row.wake_at_micros:
            return "its time will come"
        if not row.waits:
            return "it does not say what it waits for"
        child = next((rows[one] for one in rows if f"run {one}" == row.waits), None)
        if child is not None:
            return f"child {child.id} has ended" if child.status in FINISHED else ""
        return "" if row.id in self._simulation.forsaken else "what it waits for may come"

    def _queued(self, agent: str, row: RunInfo | None, rows: Mapping[str, RunInfo]) -> bool:
        """Whether an earlier run has the branch."""
        return any(
            other.agent == agent
            and other.status not in FINISHED
            and (row is None or other.started < row.started)
            for other in rows.values()
        )

    # -- was everything as promised? ---------------------------------------------------------

    def violations(self) -> list[str]:
        infos = self._store.agents()
        found: list[str] = []
        for info in infos:
            self._logs[info.name] = [*self._store.agent_of(info).log()]
            self._whole += self._store.agent_of(info).log(all_branches=True)
            found += self._of_log(info)
        rows = {row.id: row for row in self._backend.runs()}
        found += self._of_leases()
        found += self._of_starts(rows)
        for row in rows.values():
            found += self._of_run(row)
        found += self._of_effects()
        found += self._of_signals()
        self._count(rows)
        found += self._of_edits()
        found += [f"run {run} needed attention: {why}" for run, why in self._simulation.resumed]
        for agent, calls in self._simulation.tape.histories().items():
            verdict = check(calls, logs.Log(), logs.step)
            if not verdict.fits:
                found.append(f"agent {agent}: not linearizable: {verdict.stuck}")
        return found

    def _count(self, rows: Mapping[str, RunInfo]) -> None:
        counts = self._simulation.tape.counts
        counts["commits"] = sum(map(len, self._logs.values()))
        counts["runs"], counts["effects"] = len(rows), len(self._world.effects)
        counts["signals"], counts["leases"] = (
            len(self._expected.sent),
            len(self._simulation.tape.leases),
        )
        for row in rows.values():
            self._simulation.tape.count(f"runs {row.status}")

    def _of_log(self, info: AgentInfo) -> Iterator[str]:
        """The chain holds (I3), what stands beside the log follows from it, times grow."""
        agent = self._store.agent_of(info)
        try:
            agent.verify()
        except PerdureError as error:
            yield f"agent {info.name}: {error}"
            return
        commits = self._commits(info.name)
        for before, after in pairwise(commits):
            if after.epoch and after.epoch < before.epoch:
                yield f"agent {info.name}: commit {after.seq} is of an epoch that was over (I4)"
            if after.at_micros <= before.at_micros:
                yield f"agent {info.name}: commit {after.seq} is not later than the one before"
        owners: dict[int, str] = {}
        for commit in commits:
            if commit.epoch and owners.setdefault(commit.epoch, commit.executor) != commit.executor:
                yield f"agent {info.name}: epoch {commit.epoch} has two owners (I4)"

    def _commits(self, agent: str) -> list[Commit]:
        """Oldest first."""
        return sorted(self._logs.get(agent, ()), key=lambda commit: commit.seq)

    def _of_leases(self) -> Iterator[str]:
        given = Counter(
            (no, branch, epoch) for no, branch, epoch, _ in self._simulation.tape.leases
        )
        for (no, branch, epoch), times in given.items():
            if times > 1:
                yield f"epoch {epoch} of branch {branch} of agent {no} was given {times} times (I4)"

    def _of_starts(self, rows: Mapping[str, RunInfo]) -> Iterator[str]:
        """What was asked for is there, once."""
        asked = {message.run for message in self._backend.inbox(kind="start")}
        for wanted in self._expected.started:
            found = [
                row for row in rows.values() if (row.agent, row.key) == (wanted.agent, wanted.key)
            ]
            if len(found) > 1:
                yield f"run {wanted.run} was begun {len(found)} times"
            if wanted.known and not found and wanted.run not in asked:
                yield f"run {wanted.run} was promised, and is not there"
            for row in found:
                yield from self._of_result(row, wanted.program)

    # -- runs --------------------------------------------------------------------------------

    def _of_run(self, row: RunInfo) -> Iterator[str]:
        """Everybody was told the same, and its row says so."""
        results = set(self._expected.results.get(row.id, ()))
        if len(results) > 1:
            yield f"run {row.id} gave several results: {sorted(results)}"
        if row.status == "done" and results and results != {repr(row.result)}:
            yield f"run {row.id} gave {results}, and has recorded {row.result!r}"
        if row.status == "failed" and FAILING not in (row.problem or ""):
            yield f"run {row.id} failed: {row.problem}"

    def _of_result(self, row: RunInfo, program: list[Op]) -> Iterator[str]:
        """It did what its program says, in that order, each once: in its result, and in its
        agent's state."""
        wanted = [op["id"] for op in program if op["kind"] not in ("again", "raise")]
        trace = [one for one in self._state(row.agent).get("trace", ()) if one[0] == row.id]
        done = [op for _, op, _ in trace]
        if done != wanted[: len(done)]:
            yield f"run {row.id} did {done}, its program is {wanted}"
        if row.status == "done":
            if done != wanted:
                yield f"run {row.id} is done, and did only {done}"
            if row.result != [[op, gave] for _, op, gave in trace]:
                yield f"run {row.id} gave {row.result}, and its agent has {trace}"
        known = {op["id"]: op for op in program}
        for _, op, gave in trace:
            if op in known and not self._right(row, known[op], gave):
                yield f"run {row.id}: {op} gave {gave!r}"
            if op in known and known[op]["kind"] == "child" and known[op]["joined"]:
                yield from self._of_child(row, known[op], gave)

    def _of_child(self, row: RunInfo, op: Op, gave: Any) -> Iterator[str]:
        found = [
            one for one in self._backend.runs(RunQuery(agent=op["agent"])) if one.key == op["id"]
        ]
        if len(found) != 1:
            yield f"run {row.id}: child {op['id']} was begun {len(found)} times"
        elif found[0].status != gave[0] or (gave[0] == "done" and found[0].result != gave[1]):
            yield f"run {row.id}: child {op['id']} gave {gave}, and is {found[0].status}"
        else:
            yield from self._of_result(found[0], op["program"])

    def _right(self, row: RunInfo, op: Op, gave: Any) -> bool:
        """Whether it is something that the operation can give."""
        match op["kind"]:
            case "step" | "moody":
                return bool(gave == f"thought of {op['id']}")
            case "tool":
                return self._right_tool(op, gave)
            case "map":
                kinds = zip(op["items"], gave, strict=True)
                return all(self._right(row, item, one) for item, one in kinds)
            case "signal":
                return gave == "too late" or self._was_sent(row.id, op["name"], gave)
            case "select":
                name, value = gave
                return (name == "late") or self._was_sent(row.id, name, value)
            case "ask":
                answers = self._expected.answered.get(row.id, set())
                return gave == "no answer" or gave in answers
        return True

    def _right_tool(self, op: Op, gave: Any) -> bool:
        if op["policy"] == "fail" and gave == "in doubt":
            return True
        return bool(gave == f"receipt for {op['id']}")

    def _was_sent(self, run: str, name: str, value: Any) -> bool:
        return any(
            one.run == run and one.name == name and one.value == value
            for one in self._expected.sent.values()
        )

    # -- effects -----------------------------------------------------------------------------

    def _of_effects(self) -> Iterator[str]:
        """Each at most once, under one key; once exactly where a run was told that it was had."""
        for op, times in Counter(effect.op for effect in self._world.effects).items():
            if times > 1:
                yield f"{op} had its effect {times} times (I5)"
        for op, keys in self._world.asked.items():
            if len(keys) > 1:
                yield f"{op} was asked for under {len(keys)} keys"
        for op in self._told_done():
            if self._world.had(op) != 1:
                yield f"{op} is recorded as done, and had its effect {self._world.had(op)} times"

    def _told_done(self) -> Iterator[str]:
        for agent in self._logs:
            for _, op, gave in self._state(agent).get("trace", ()):
                if op.startswith("tool") and gave != "in doubt":
                    yield op
                if op.startswith("map"):
                    yield from (
                        one.removeprefix("receipt for ")
                        for one in gave
                        if str(one).startswith("receipt for ")
                    )

    # -- messages ----------------------------------------------------------------------------

    def _of_signals(self) -> Iterator[str]:
        """Each that the store said that it had is taken once, or lies there still, or is with the
        record that ended its run; those of one name are taken in the order in which they came."""
        came = {(one.run, one.key): one for one in self._mail() if one.kind == "signal"}
        taken: dict[str, list[str]] = {}
        there = Counter((one.run, one.key) for one in self._backend.inbox(kind="signal"))
        for run, key, left in self._taken():
            there[run, key] += 1
            if not left:
                taken.setdefault(run, []).append(key)
        for (run, _, key), sent in self._expected.sent.items():
            times = there.pop((run, key), 0)
            if times > 1:
                yield f"signal {key} came to run {run} {times} times"
            if sent.known and not times and not self._is_trimmed(run):
                yield f"signal {key} to run {run} is lost"
        for run, key in there:
            if key.startswith("signal-"):
                yield f"signal {key} came to run {run}, and nobody sent it there"
        for run, keys in taken.items():
            for name in ("a", "b"):
                numbers = [
                    came[run, key].no
                    for key in keys
                    if (run, key) in came and came[run, key].name == name
                ]
                if numbers != sorted(numbers):
                    yield f"run {run} took signals {name} in the order {numbers}"

    def _taken(self) -> Iterator[tuple[str, str, bool]]:
        """Signals in the logs: run, key, and whether it was only left over."""
        for commit in sorted(self._whole, key=lambda commit: (commit.agent, commit.seq)):
            for record in commit.records:
                run = str(record.get("run", ""))
                key = str(record.get("key", ""))
                if record["t"] == "wait-ended" and key.startswith("signal-"):
                    yield run, key, False
                for left in record.get("left", ()):
                    yield run, str(left["key"]), True

    def _is_trimmed(self, run: str) -> bool:
        """Whether its log does not tell any more which signals it took."""
        return any(
            commit.trimmed and commit.cause.run == run
            for log in self._logs.values()
            for commit in log
        )

    def _mail(self) -> list[Message]:
        return self._backend.mail(limit=100_000).messages

    def _of_edits(self) -> Iterator[str]:
        """What clients were told is in, is in, once (I1); what they were not told, once at most."""
        for mark, (agent, known) in self._expected.edits.items():
            times = self._state(agent).get("marks", []).count(mark)
            if times > 1 or (known and not times):
                yield f"{mark} is {times} times in the state of agent {agent}"

    def _state(self, agent: str) -> Mapping[str, Any]:
        info = self._store.find(agent)
        return {} if info is None else self._store.agent_of(info).state
