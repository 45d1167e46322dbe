"""A log that somebody else wrote is taken in when all of it can be read, and not at all else."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

import perdure
from perdure.core.format import chain, remains
from perdure.core.format.stored_records import plain_of
from perdure.core.values import codec, ops
from perdure.core.values.plain_values import copy
from perdure.errors import Corrupt
from perdure.missing import MISSING
from perdure.model import AgentInfo, Commit
from perdure.storage.log import chunk_size
from perdure.storage.retention import RETENTION, Trim
from perdure.transfer import incoming_states
from perdure.transfer.whole_log import LogEntry
from tests.fuzz.targets.logs import mended, parts_of


def entries(store: perdure.Store) -> list[LogEntry]:
    return list(store.export_log(store.agents()[0]))


def forked() -> list[LogEntry]:
    """Commits 1 and 2 on main, 3 and 4 on a side branch, then 5 on main."""
    with perdure.open("memory://") as store:
        agent = store.agent("a", initial={"n": 0, "list": []})
        agent.save({"n": 1, "list": []}, "one")
        side = agent.fork("side")
        with side.edit("two") as draft:
            draft["list"].append(1)
        agent.save({"n": 2, "list": []}, "three")
        return entries(store)


def with_delta(log: list[LogEntry], seq: int, *delta: ops.Op) -> list[LogEntry]:
    """The log as one that was written so: its chain is right."""
    parts = parts_of(log)
    _, records = codec.decode(parts[2 * seq - 1])
    parts[2 * seq - 1] = codec.encode([[chain.to_wire(op) for op in delta], records])
    return mended(parts)


def refused(log: list[LogEntry], words: str) -> Corrupt:
    with perdure.open("memory://") as store:
        with pytest.raises(Corrupt, match=words) as caught:
            store.import_log(log)
        assert store.agents() == [] and store.runs() == []
    return caught.value


def test_a_log_is_refused_whose_side_branch_does_not_fold() -> None:
    """Only the line of main was folded: such a log was taken in, its root was right, and from then
    on `verify` and the branch said Corrupt, for good."""
    error = refused(with_delta(forked(), 4, ops.Append(("n",), [1])), "does not fit")
    assert error.seq == 4 and "export a --until 3" in str(error)


def test_a_log_is_refused_where_what_was_rolled_back_does_not_fold() -> None:
    with perdure.open("memory://") as store:
        agent = store.agent("a", initial={"n": 0})
        agent.save({"n": 1}, "one")
        agent.save({"n": 2}, "two")
        agent.rollback(1)
        log = entries(store)
    refused(with_delta(log, 3, ops.Delete(("other",))), "commit 3")


def test_a_log_is_refused_that_does_not_say_why_something_is_gone() -> None:
    """It was taken in, and could be verified no more."""
    log = forked()
    log[2] = LogEntry(log[2].header, remains.REMOVED)
    refused(log, "the log does not say")


def trimmed() -> list[LogEntry]:
    with perdure.open("memory://") as store:
        agent = store.agent("a", initial={"n": 0})
        for n in range(1, 6):
            agent.save({"n": n}, "more")
        agent.trim(4)
        return entries(store)


def test_a_log_is_refused_whose_word_on_what_is_gone_is_another_one() -> None:
    log = trimmed()
    with perdure.open("memory://") as store:
        store.import_log(log)
        assert store.agent("a").verify().trimmed
    gone = next(place for place, one in enumerate(log) if one.payload == remains.REMOVED)
    behind = LogEntry(log[gone + 1].header, remains.REMOVED)
    refused([*log[: gone + 1], behind, *log[gone + 2 :]], "gone")


def grown(store: perdure.Store) -> AgentInfo:
    agent = store.agent("a", initial={"n": 0})
    for n in range(1, 8):
        agent.save({"n": n}, "more")
    info = store.find("a")
    assert info is not None
    return info


def test_a_log_that_is_trimmed_while_it_is_exported_is_taken_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The export had what was left, and not the word behind it that says what was removed: it was
    refused as damaged."""
    monkeypatch.setattr(chunk_size, "CHUNK_MAX", 3)
    with perdure.open("memory://") as store, perdure.open("memory://") as other:
        info = grown(store)
        log = store.export_log(info)
        begun = [next(log)]
        store.agent("a").trim(7)
        other.import_log([*begun, *log])
        assert other.agent("a").state == {"n": 7}
        assert other.agent("a").verify().trimmed
    with perdure.open("memory://") as store, perdure.open("memory://") as other:
        log = store.export_log(grown(store), until=6)
        begun = [next(log)]
        store.agent("a").trim(7)
        other.import_log([*begun, *log])
        assert other.agent("a").state == store.agent("a").at(6).plain
        assert other.agent("a").verify().trimmed


def test_a_log_that_is_purged_while_it_is_exported_is_gone_and_not_damaged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chunk_size, "CHUNK_MAX", 3)
    with perdure.open("memory://") as store:
        grown(store)
        store.delete("a", purge=True)
        info = store.find("a")
        assert info is not None
        log = store.export_log(info)
        next(log)
        store.purge()
        with pytest.raises(perdure.NotFound, match="its log purged"):
            list(log)


def test_a_word_that_names_itself_as_the_one_before_it_is_not_followed_for_ever() -> None:
    """Where it does not stand, the one that it names was looked at, which was itself."""
    with perdure.open("memory://") as store:
        for n in range(3):
            store.agent("a").save({"n": n}, "more")
        parts = parts_of(entries(store))
    fields = msgspec.msgpack.decode(parts[-2])
    fields[5] = RETENTION
    record = plain_of(Trim(5, 2, 5, 4, ((2, 3),), {}).record())
    word = [msgspec.msgpack.encode(fields), codec.encode([[], [record]])]
    refused(mended([*parts, *word]), "as its previous word")


@pytest.mark.parametrize("seed", range(4))
def test_every_state_is_made_once_and_is_that_of_the_log(seed: int) -> None:
    rng = random.Random(seed)
    with perdure.open("memory://") as store:
        agent = store.agent("a")
        agent.save({"n": 0, "list": []}, "begin")
        for number in range(60):
            if rng.random() < 0.2:
                agent = agent.fork(f"b{number}", at=rng.randint(1, agent.seq or 1))
            with agent.edit("it") as draft:
                draft["n"] = number
                draft.setdefault("list", []).append(number)
        told = {one.seq: agent.at(one.seq).plain for one in agent.log(all_branches=True)}
        log = entries(store)
    commits = {entry.commit.seq: entry for entry in log}
    asked: list[int] = []

    def stored(seq: int) -> tuple[Commit, bytes]:
        asked.append(seq)
        return commits[seq].commit, commits[seq].payload

    parents = [entry.commit.parent for entry in log]
    found: dict[int, Any] = {
        seq: copy(state) for seq, state in incoming_states.states(parents, stored)
    }
    assert found == told and MISSING not in found.values()
    assert sorted(asked) == sorted(told)
