"""`perdure repair` where a bit of the file is flipped: each command that it prints works."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import perdure
from perdure.replication import migrate
from tests.cli.operator import Operator

DAMAGED = "order-13"


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    """Thirty small agents; one bit of the last commit of one of them is flipped, on a page that has
    the commits of a dozen."""
    operator = Operator(tmp_path / "an owner's agents.db")
    with perdure.open(operator.path) as store:
        for number in range(30):
            with store.agent(f"order-{number}").edit("begun") as draft:
                draft["text"] = f"MARKER{number:02}" + "x" * 120
    data = bytearray(operator.path.read_bytes())
    data[data.rfind(b"MARKER13") + 2] ^= 1
    operator.path.write_bytes(data)
    return operator


def commands(said: str) -> list[str]:
    return re.findall(r"`(perdure [^`]+)`", said)


def paste(command: str) -> "subprocess.CompletedProcess[str]":
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        command,
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path},
    )


def test_a_flipped_bit_costs_the_commit_that_it_is_in(operator: Operator) -> None:
    """Story: a dozen healthy agents could not be read any more, for good, as their page failed its
    checksum. The hint was `perdure repair`, which found what is wrong and printed ways back; each
    of them failed with the page's error, whose hint was `perdure repair`."""
    code, said = operator.refused("state", "order-12")
    assert code == 5
    repair, anyway = commands(said)
    done = paste(repair)
    assert done.returncode == 5 and f"agent '{DAMAGED}', commit 2" in done.stderr
    again, *ways = commands(done.stderr)
    assert again == anyway
    done = paste(again)
    assert done.returncode == 0, done.stderr
    assert "29 logs proved" in done.stdout and f"agent '{DAMAGED}', commit 2" in done.stdout
    (verify,) = commands(done.stdout)
    assert paste(verify).returncode == 5
    assert Path(f"{operator.path}-damaged").exists()
    names = [re.search(r" (rollback|fork|state|export|verify) ", way) for way in ways]
    assert [name and name[1] for name in names] == ["rollback", "fork", "state", "export", "verify"]
    for way in reversed(ways):
        done = paste(way)
        assert done.returncode == (5 if way == ways[-1] else 0), done.stderr
    with perdure.open(operator.path) as store:
        store.check_pages()
        for number in set(range(30)) - {13}:
            agent = store.agent(f"order-{number}")
            assert agent.verify().commits == 2
            assert agent.state["text"] == f"MARKER{number:02}" + "x" * 120
        assert store.agent(DAMAGED).state == {}
        store.agent(DAMAGED).save({"text": "again"}, "goes on")


def test_the_whole_agents_move_and_the_damaged_one_as_far_as_it_goes(
    operator: Operator, tmp_path: Path
) -> None:
    said = operator.json("repair", "--take-incomplete")
    assert said["ok"] and not said["complete"]
    (damaged,) = [one for one in said["agents"] if not one.get("proved", True)]
    assert (damaged["agent"], damaged["before"]) == (DAMAGED, 1)
    assert said["copy"] == f"{operator.path}-damaged"
    other = str(tmp_path / "other.db")
    migrate(str(operator.path), other, take_incomplete=True)
    with perdure.open(other) as store:
        assert len(store.agents()) == 30 and store.agent(DAMAGED).seq == 1


def test_where_all_is_whole_the_flag_names_nothing(operator: Operator) -> None:
    """As after another SQLite: the checksum of a page is wrong, and nothing on it."""
    data = bytearray(operator.path.read_bytes())
    data[data.rfind(b"MASKER13") + 2] ^= 1  # as it was
    data[-1] ^= 1
    operator.path.write_bytes(data)
    said = operator.json("repair", "--take-incomplete")
    assert len(said["agents"]) == 30 and all(one["root"] for one in said["agents"])
