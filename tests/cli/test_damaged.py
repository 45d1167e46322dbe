"""An agent with a commit that cannot be read, from the shell: the way out can be pasted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.integrations.langgraph import PerdureSaver
from tests.cli.operator import Operator
from tests.damaging import KINDS, Vandal
from tests.engine.waits import go
from tests.integrations.langgraph.checkpoints import config, line

NAME = "an agent's"


@perdure.agent(dict)
def waiting(run: perdure.Run[dict[str, Any]]) -> Any:
    return run.wait_for("go")


def fill(path: Path, kind: str) -> tuple[str, int]:
    """An agent whose run waits, and behind that the damage; its run, and the last good commit."""
    with perdure.open(path, durability="os") as store:
        store.agent(NAME, initial={"n": 0}).save({"n": 1})
        assert go(store, waiting, NAME) is None
        (run,) = store.runs(NAME)
        assert run.status == "waiting"
        last = store.agent(NAME).seq
        Vandal(store, NAME).damage(kind)
    return run.id, last


@pytest.mark.parametrize("kind", KINDS)
def test_every_command_that_leads_out_works(tmp_path: Path, kind: str) -> None:
    """Story: state, rollback, fork, export, verify and cancel alike said Corrupt, for good, and the
    run on that branch could neither go on nor be ended."""
    operator = Operator(tmp_path / "agents.db")
    run, last = fill(operator.path, kind)
    for words in (["show", NAME], ["runs"], ["branches", NAME], ["why", run], ["run", "show", run]):
        assert operator.see(*words)
    assert operator.type("log", NAME).exit_code in (0, 5)
    assert operator.json("state", NAME, "--at", str(last))["state"] == {"n": 1}
    found = operator.type("verify", NAME, "--json")
    assert found.exit_code == 5 and f'"commit": {last + 1}' in found.stdout
    file = str(tmp_path / "until")
    assert operator.json("export", NAME, "--until", str(last), "-o", file)["commits"] == last
    other = Operator(tmp_path / "other.db")
    assert other.json("import", "--create", file)["commits"] == last
    assert operator.see("fork", NAME, "way-out", "--at", str(last))
    assert operator.json("cancel", run)["status"] == "cancelled"
    assert operator.see("rollback", NAME, str(last))
    assert operator.json("state", NAME)["state"] == {"n": 1}


def test_the_commands_that_an_error_names_can_be_pasted(tmp_path: Path) -> None:
    """Each of them, by a real shell, from one error; of an agent whose name wants quoting."""
    operator = Operator(tmp_path / "agents.db")
    run, last = fill(operator.path, "a byte of the payload")
    operator.see("cancel", run)
    code, said = operator.refused("state", NAME)
    assert code == 5
    commands = re.findall(r"`(perdure [^`]+)`", said)
    assert [command.split()[3] for command in commands] == [
        "rollback",
        "fork",
        "state",
        "export",
        "verify",
    ]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for command in reversed(commands):
        done = subprocess.run(
            command,
            shell=True,
            executable="/bin/bash",
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": path},
        )
        assert done.returncode == (5 if " verify " in command else 0), done.stderr
    assert operator.json("state", NAME)["state"] == {"n": 1}
    assert operator.json("state", NAME, "--branch", f"before-{last + 1}")["state"] == {"n": 1}


def test_one_damaged_agent_does_not_keep_the_others_from_being_trimmed(tmp_path: Path) -> None:
    """`perdure trim --older-than` stopped at the first agent with a damaged commit: all behind it
    only grew."""
    operator = Operator(tmp_path / "agents.db")
    with perdure.open(operator.path, durability="os") as store:
        for name in ("a", "b", "c"):
            for n in range(5):
                store.agent(name, initial={"n": 0}).save({"n": n + 1})
        last = store.agent("b").seq
        Vandal(store, "b").damage("a byte of the payload")
    done = operator.json("trim", "--older-than", "0s")
    assert [one["agent"] for one in done["trimmed"]] == ["a", "c"]
    assert done["kept"] == [], "it may be trimmed, and has nothing yet that may go"
    assert operator.json("state", "b", "--at", str(last))["state"] == {"n": 5}
    assert operator.see("rollback", "b", str(last))
    with perdure.open(operator.path, durability="os") as store:
        for n in range(5):
            store.agent("b").save({"n": 10 + n})
    (done,) = operator.json("trim", "b", "--before", "main")["trimmed"]
    assert done["removed"] and operator.json("state", "b")["state"] == {"n": 14}


@pytest.mark.parametrize("command", ["verify", "repair"])
def test_a_command_that_proves_the_store_is_not_told_to_prove_it(
    tmp_path: Path, command: str
) -> None:
    """Story: of a store whose file was cut short `perdure verify` said: run `perdure verify`. Of
    one with a damaged schema it led to `repair`, and that back to `verify`."""
    operator = Operator(tmp_path / "agents.db")
    with perdure.open(operator.path) as store:
        store.agent("a").save({"text": "x" * 5000})
    os.truncate(operator.path, operator.path.stat().st_size - 1000)
    code, said = operator.refused(command)
    assert code == 5 and "from a copy" in said and "perdure verify" not in said
    assert " verify`" in operator.refused("ls")[1]


@pytest.mark.parametrize("named", [[], ["copy"], ["origin"]])
def test_verify_sees_the_log_that_a_copy_reads(tmp_path: Path, named: list[str]) -> None:
    """Story: a thread was renamed, by a copy whose origin was deleted. Bits of the origin's log
    flipped: verify said that all was whole, and the thread could not be read."""
    operator = Operator(tmp_path / "agents.db")
    with perdure.open(operator.path) as store:
        saver = PerdureSaver(store)
        line(saver, 5, config("origin"))
        saver.copy_thread("origin", "copy")
        assert store.find("origin").seq > 3  # type: ignore[union-attr]
        store.delete("origin")
        store.agent("origin").save({"n": 1})  # the name lives again
        assert operator.json("verify", *named)["ok"]
        backend = store._context.backend
        (row,) = backend.read(1, 3, 3)
        backend.trim(1, 0, {3: row.payload[:-1] + bytes([row.payload[-1] ^ 1])})
    found = operator.type("verify", *named, "--json")
    assert found.exit_code == 5 and '"commit": 3' in found.stdout
    said = operator.type("verify", *named).output
    assert "restore the store from a copy" in said and "rollback" not in said


@pytest.mark.parametrize("another", [False, True])
def test_the_export_of_a_copy_says_what_it_is_read_through(tmp_path: Path, another: bool) -> None:
    """Story: a thread was renamed, by a copy whose origin was deleted, and exported for a backup.
    Export, import and verify said that it was whole; nothing of it could be read, and the store
    that it came from was gone."""
    here, there = Operator(tmp_path / "here.db"), Operator(tmp_path / "there.db")
    with perdure.open(here.path) as store:
        saver = PerdureSaver(store)
        line(saver, 5, config("origin"))
        saver.copy_thread("origin", "copy")
        saver.copy_thread("copy", "copy of it")
        store.delete("origin")
    with perdure.open(there.path) as store:
        if another:  # of that name
            line(PerdureSaver(store), 9, config("origin"))
    for name, reads in (("origin", []), ("copy", ["origin"]), ("copy of it", ["copy", "origin"])):
        file = str(tmp_path / name)
        assert here.json("export", name, "-o", file).get("reads", []) == reads
        said = here.type("export", name, "-o", file, "--force").output
        assert all(f"{one}" in said for one in reads) and ("is a copy" in said) == bool(reads)
    said = there.type("import", str(tmp_path / "copy of it")).output
    assert "not in this store" in said and "bring 'copy' along" in said
    for named in ([], ["copy of it"]):
        found = there.type("verify", *named)
        assert found.exit_code == 3 and "not in this store" in found.output
        assert '"ok": false' in there.type("verify", *named, "--json").stdout
    assert there.json("import", str(tmp_path / "copy"))["lacks"]
    if not another:
        assert "lacks" not in there.json("import", str(tmp_path / "origin"))
        assert there.json("verify")["ok"]
