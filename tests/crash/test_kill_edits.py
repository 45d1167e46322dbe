"""Real processes that are killed while they write, and that write at the same time (I1, I2, I3)."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import SnapshotPolicy

ROUNDS = 20

WRITER = """
import sys
import perdure
from perdure import SnapshotPolicy

store = perdure.open(sys.argv[1], durability=sys.argv[2], snapshots=SnapshotPolicy(every_commits=7))
agent = store.agent("a", initial={"items": []})
print("ready", flush=True)
while True:
    with agent.edit("one more", key=f"k-{len(agent.state['items'])}") as draft:
        draft["items"].append(len(draft["items"]))
        draft["last"] = "x" * (len(draft["items"]) % 400)
    sys.stdout.write(f"{agent.seq} {len(agent.state['items'])}\\n")
    sys.stdout.flush()
"""


def write_until_killed(url: str, durability: str, after_s: float) -> list[tuple[int, int]]:
    """What the killed process was told is durable: seqs, and the items there by then."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, url, durability],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    timer = threading.Timer(after_s, process.send_signal, [signal.SIGKILL])
    timer.start()
    lines = process.stdout.read().split("\n")
    process.stdout.close()
    assert process.wait() == -signal.SIGKILL
    return [(int(seq), int(count)) for seq, count in (line.split() for line in lines[:-1])]


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_i1_what_was_acknowledged_survives_a_kill(tmp_path: Path, durability: str) -> None:
    """At "os", too: it promises to survive the process, not the machine."""
    url = str(tmp_path / "store.db")
    rng = random.Random(durability)
    count = 0
    for _ in range(ROUNDS // 2):
        told = write_until_killed(url, durability, rng.uniform(0, 0.15))
        with perdure.open(url) as store:
            agent = store.agent("a", initial={"items": []})
            items = agent.state["items"]
            assert items == list(range(len(items)))
            # One commit may have landed whose answer did not.
            known = told[-1][1] if told else count
            assert known <= len(items) <= known + 1
            for seq, there in told:
                assert len(agent.at(seq).plain["items"]) == there
            assert agent.state.get("last", "") == "x" * (len(items) % 400)
            if agent.exists:
                assert agent.verify().commits == agent.seq == len(items) + 1
                store.check_pages()
            count = len(items)
    assert count > 0


def _own(url: str, name: str, seconds: float, counts: Any) -> None:
    """Writes an agent of its own, and adds to the one that all share."""
    with perdure.open(url, durability="os", snapshots=SnapshotPolicy(every_commits=5)) as store:
        mine = store.agent(name, initial={"n": 0})
        shared = store.agent("shared", initial={"n": 0, "by": {}})
        own = added = 0
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with mine.edit() as draft:
                draft["n"] += 1
            own += 1
            if own % 3 == 0:
                shared.update(lambda draft: add(draft, name))
                added += 1
        counts.put((name, own, added))


def add(draft: Any, name: str) -> None:
    draft["n"] += 1
    draft["by"][name] = draft["by"].get(name, 0) + 1


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    """No "database is locked", no lost update, each log whole."""
    url = str(tmp_path / "store.db")
    context = multiprocessing.get_context("spawn")
    counts = context.Queue()
    names = [f"agent-{n}" for n in range(4)]
    workers = [context.Process(target=_own, args=(url, name, 1.5, counts)) for name in names]
    for worker in workers:
        worker.start()
    found = [counts.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    with perdure.open(url) as store:
        for name, own, added in found:
            agent = store.agent(name)
            assert agent.state == {"n": own}
            assert agent.verify().commits == own + 1
            assert store.agent("shared").state["by"].get(name, 0) == added
        shared = store.agent("shared")
        assert shared.state["n"] == sum(added for _, _, added in found)
        assert shared.verify().commits == shared.state["n"] + 1
        store.check_pages()


def test_a_killed_writer_does_not_stop_the_others(tmp_path: Path) -> None:
    """SIGKILL in the middle of transactions, while another process goes on writing to the file."""
    url = str(tmp_path / "store.db")
    rng = random.Random(3)
    with perdure.open(url, durability="os") as store:
        mine = store.agent("mine", initial={"n": 0})
        mine.checkpoint("start")
        stop = threading.Event()
        errors: list[BaseException] = []

        def go_on() -> None:
            try:
                while not stop.is_set():
                    mine.update(lambda draft: draft.update(n=draft["n"] + 1))
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=go_on)
        thread.start()
        told: list[tuple[int, int]] = []
        for _ in range(5):
            told += write_until_killed(url, "os", rng.uniform(0.02, 0.15))
        stop.set()
        thread.join()
        assert errors == []
        assert mine.state["n"] == mine.seq - 2 > 0
        mine.verify()
        theirs = store.agent("a", initial={"items": []})
        assert len(theirs.state["items"]) >= max((there for _, there in told), default=0)
        if theirs.exists:
            theirs.verify()
        assert os.path.exists(url)
