"""Looks at what the migration left: the trees by plain hashing, the log against the ledger.

Each check either holds, or says what it found instead.
"""

from __future__ import annotations

import hashlib
import os
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import perdure
from examples.demo.conductor import Job, Story
from examples.demo.ledger import Line
from examples.migration import Migration

AGENT = "migration"


@dataclass(frozen=True)
class Check:
    """One thing that must hold. `found` is what does not; empty if it does."""

    claim: str
    found: list[str]

    @property
    def holds(self) -> bool:
        return not self.found


def count(number: int, thing: str, things: str = "") -> str:
    """`1 batch`, `1,200 batches`."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def every(number: int, thing: str, things: str = "") -> str:
    return f"the only {thing}" if number == 1 else f"each of {count(number, thing, things)}"


# -- the outages: by what was seen from outside ----------------------------------------------


def check_outages(story: Story, wanted: int) -> Check:
    """Each kill began an outage or fell into one, and each outage ended with a recovery."""
    kills, outages = len(story.kills), len(story.outages)
    found = [f"only {count(kills, 'kill')}, {wanted} were wanted"] if kills < wanted else []
    if sum(outage.kills for outage in story.outages) != kills:
        found.append("there are kills without an outage")
    found += [
        f"outage {number} was not recovered from"
        for number, outage in enumerate(story.outages, 1)
        if outage.ended is None
    ]
    if not kills:
        return Check("nothing was killed", found)
    each = "recovered" if outages == 1 else "each recovered"
    return Check(f"{count(kills, 'kill')} in {count(outages, 'outage')}, {each}", found)


# -- the trees: nothing of the library, nothing of the example -------------------------------


def tree_hashes(root: Path, skip: list[str]) -> dict[str, str]:
    """SHA-256 of each regular file under a folder, by its path in it."""
    hashes = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in skip]
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.islink(path):
                with open(path, "rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
                hashes[os.path.relpath(path, root)] = digest
    return hashes


def check_trees(source: dict[str, str], dest: dict[str, str]) -> Check:
    found = [f"{path} is missing" for path in source.keys() - dest.keys()]
    found += [f"{path} should not be there" for path in dest.keys() - source.keys()]
    found += [
        f"{path} has another hash"
        for path in source.keys() & dest.keys()
        if source[path] != dest[path]
    ]
    return Check(f"{every(len(source), 'file')} arrived, with the right hash", sorted(found))


# -- the log ---------------------------------------------------------------------------------


@dataclass
class Call:
    """One tool call as the log has it."""

    intents: list[tuple[int, int]] = field(default_factory=list)  # attempt, epoch
    outcomes: list[tuple[int, Any]] = field(default_factory=list)  # epoch, value


@dataclass
class Log:
    """What the log says, in the words that the checks are made in."""

    calls: dict[str, Call]
    edits: list[str]
    state: Migration
    runs: list[str]
    commits: int
    bytes: int
    batch_bytes: list[int]
    root: str

    @property
    def attempts(self) -> int:
        return sum(len(call.intents) for call in self.calls.values())


def read_log(store_path: Path) -> Log:
    """Read and verify it.

    Raises:
        Corrupt: a byte of it is not what was written.
    """
    with perdure.open(store_path, create=False) as store:
        agent = store.agent(AGENT, Migration)
        store.check_pages()
        verified = agent.verify()
        commits = list(agent.log())
        keys: dict[str, str] = {}
        calls: dict[str, Call] = {}
        batch_bytes: Counter[str] = Counter()
        for commit in commits:
            for record in commit.records:
                place = str(record.get("place"))
                if record["t"] == "intent":
                    keys[place] = key = str(record["key"])
                    call = calls.setdefault(key, Call())
                    call.intents.append((record["attempt"], commit.epoch))
                elif record["t"] == "outcome":
                    calls[keys[place]].outcomes.append((commit.epoch, record.get("value")))
            if (place := commit.cause.step or "").startswith(("copy_batch#", "edit:batch")):
                batch_bytes[place] += commit.size
        copied = [c.cause.what for c in commits if c.cause.what.endswith(" copied")]
        return Log(
            calls,
            copied,
            agent.state,
            [run.status for run in store.runs(AGENT)],
            len(commits),
            sum(commit.size for commit in commits),
            _pairs(batch_bytes),
            verified.root,
        )


def _pairs(sizes: Counter[str]) -> list[int]:
    """Bytes of log per batch: of its tool call and of its edit."""
    calls = [size for place, size in sizes.items() if place.startswith("copy_batch#")]
    edits = [size for place, size in sizes.items() if place.startswith("edit:")]
    return [call + edit for call, edit in zip(calls, edits, strict=False)]


def check_log(job: Job, log: Log, lines: list[Line], source: dict[str, str]) -> Iterator[Check]:
    yield _recorded_once(job, log)
    yield _receipts_right(log, source)
    yield check_calls(log.calls, lines)
    right = log.state.files_done == len(source) and log.runs == ["done"]
    yield Check(
        "the state counts every file once, and the run is done",
        [] if right else [f"{log.state}, runs {log.runs}"],
    )


def _recorded_once(job: Job, log: Log) -> Check:
    expected = [f"batch {number} copied" for number in range(1, job.batches + 1)]
    found = [] if log.edits == expected else [f"edits: {log.edits}"]
    if len(log.calls) != job.batches:
        found.append(f"{len(log.calls)} tool calls")
    for key, call in log.calls.items():
        if len(call.outcomes) != 1:
            found.append(f"call {key} has {len(call.outcomes)} outcomes")
    batches = every(job.batches, "batch", "batches")
    return Check(f"{batches} is recorded, once and in order", found)


def _receipts_right(log: Log, source: dict[str, str]) -> Check:
    receipts: Counter[tuple[str, str]] = Counter()
    for call in log.calls.values():
        for _, value in call.outcomes:
            receipts.update(((value or {}).get("receipts") or {}).items())
    wrong = receipts - Counter(source.items())
    missing = Counter(source.items()) - receipts
    found = [f"receipt {item} is wrong or repeated" for item in wrong]
    found += [f"no receipt for {path}" for path, _ in missing]
    return Check("the receipts in the log are the hashes of the files", sorted(found))


def check_calls(calls: dict[str, Call], lines: list[Line]) -> Check:
    """Each physical call has an intent of its own, by key and owner; none comes behind an outcome;
    and attempts are counted."""
    physical = [(line.key, line.epoch) for line in lines if not line.returned]
    intents = [(key, epoch) for key, call in calls.items() for _, epoch in call.intents]
    unannounced = Counter(physical) - Counter(intents)
    found = [f"call {key}, epoch {epoch}: no intent" for key, epoch in unannounced]
    for key, call in calls.items():
        if [attempt for attempt, _ in call.intents] != list(range(1, len(call.intents) + 1)):
            found.append(f"call {key}: its attempts are {call.intents}")
        settled = min((epoch for epoch, _ in call.outcomes), default=sys.maxsize)
        late = [epoch for other, epoch in physical if other == key and epoch > settled]
        found += [f"call {key}: made in epoch {epoch}, behind its outcome" for epoch in late]
    repeated = len(physical) - len({key for key, _ in physical})
    return Check(
        f"no tool call was silently repeated: of {count(len(physical), 'call')} seen from outside, "
        f"{repeated} repeated one, each with an intent of its own",
        found,
    )


# -- in figures ------------------------------------------------------------------------------


def figures(story: Story, log: Log, seconds: float) -> list[tuple[str, str]]:
    """The summary, as rows."""
    moments = Counter(kill.moment for kill in story.kills)
    cuts = sum(kill.standby_too for kill in story.kills)
    kills = ", ".join(f"{count} {moment}" for moment, count in moments.items())
    rows = [("kills", f"{len(story.kills)}: {kills}" if kills else "none")]
    if cuts:
        rows.append(("", f"{cuts} of them took the standby, too, like a power cut"))
    warm = [outage.seconds for outage in story.recoveries if not outage.cold]
    cold = [outage.seconds for outage in story.recoveries if outage.cold]
    rows.append(("recovery by a standby", _spread(warm)))
    rows.append(("with a new process to start", _spread(cold)))
    rows.append(("log", f"{count(log.commits, 'commit')}, {count(log.bytes, 'byte')}"))
    if log.batch_bytes:
        half = len(log.batch_bytes) // 2
        first, second = log.batch_bytes[:half], log.batch_bytes[half:]
        rows.append(("bytes of log per batch", f"{statistics.mean(log.batch_bytes):,.0f}"))
        if half:
            rows.append(
                (
                    "",
                    f"first half {statistics.mean(first):,.0f}, "
                    f"second half {statistics.mean(second):,.0f}",
                )
            )
    copied = f"{count(log.state.files_done, 'file')}, {count(log.state.bytes_done, 'byte')}"
    rows.append(("copied", copied))
    rows.append(("time", f"{seconds:.1f} s"))
    return rows


def _spread(seconds: list[float]) -> str:
    if not seconds:
        return "none"
    return (
        f"{count(len(seconds), 'time')}; median {statistics.median(seconds):.2f} s, "
        f"longest {max(seconds):.2f} s"
    )
