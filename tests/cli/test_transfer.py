"""export and import: the whole history in one file, byte by byte, or not at all."""

import base64
import json
import os
import stat
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.state.runs.run_rows import RebuiltRows
from perdure.storage.appending import Outcome
from perdure.storage.sqlite import append as sqlite_append
from tests.cli.operator import Operator, failing, support


@pytest.fixture
def export(operator: Operator) -> Path:
    with perdure.open(operator.path) as store:
        with pytest.raises(ValueError, match="no such"):
            store.run(failing, "ticket-42")
        store.agent("ticket-42").rollback("before refund")
    path = operator.path.with_name("ticket-42.jsonl")
    operator.see("export", "ticket-42", "-o", str(path))
    return path


@pytest.fixture
def destination(operator: Operator) -> Operator:
    path = operator.path.with_name("destination.db")
    perdure.open(path).close()
    return Operator(path)


def test_the_same_agent_with_the_same_ids(
    operator: Operator, export: Path, destination: Operator
) -> None:
    root = operator.json("verify", "ticket-42")["agents"][0]["root"]
    assert "root " + root in destination.see("import", str(export))
    assert destination.json("verify", "ticket-42", "--anchor", root)["ok"]
    for command in (
        ["log", "--all"],
        ["branches", "--all"],
        ["runs"],
        ["effects"],
        ["state"],
        ["state", "--at", "before refund"],
        ["state", "-b", "what-if"],
    ):
        words = [command[0], "ticket-42", *command[1:]]
        theirs, ours = operator.json(*words), destination.json(*words)
        for branch in theirs.get("branches", []) if isinstance(theirs, dict) else []:
            branch["holder"] = None
        assert theirs == ours, command


def test_it_goes_on_at_the_destination(
    operator: Operator, export: Path, destination: Operator
) -> None:
    destination.see("import", str(export))
    with perdure.open(operator.path) as store:
        epoch = next(one.epoch for one in store.agent("ticket-42").branches() if one.name == "main")
    assert epoch > 0
    with perdure.open(destination.path) as store:
        agent = store.agent("ticket-42")
        # A key that took effect at the source does not again; a run that finished has its result.
        with agent.edit("message added", key="msg-1") as draft:
            draft["messages"].append("twice")
        assert len(agent.state["messages"]) == 3
        assert store.run(support, "ticket-42", "Where is my money?") == "done"
        with agent.edit("on") as draft:
            draft["more"] = 1
        with pytest.raises(perdure.Conflict):
            agent.checkpoint("before refund")
        # I4: fencing tokens go on growing.
        main = next(branch for branch in agent.branches() if branch.name == "main")
        assert main.epoch == epoch
        agent.verify()


def test_a_run_in_doubt_moves_with_its_agent(operator: Operator, destination: Operator) -> None:
    path = operator.path.with_name("43.jsonl")
    operator.see("export", "ticket-43", "-o", str(path))
    destination.see("import", str(path))
    destination.see("settle", "ticket-43", "refund#1", "--done", "{}")
    with perdure.open(destination.path) as store:
        assert store.run(support, "ticket-43", "Where is my money?") == "done"


def test_rows_of_runs_are_a_view_on_the_log(operator: Operator) -> None:
    with perdure.open(operator.path) as store:
        with pytest.raises(perdure.NeedsAttention):
            store.run(support, "ticket-43", "Where is my money?")
        for agent in ("ticket-42", "ticket-43"):
            rebuilt: dict[str, Any] = {}
            rows = RebuiltRows()
            for commit in store.agent(agent).log():
                rebuilt.update({row.id: row for row in rows.after(commit)})
            stored = {row.id: row for row in store.runs(agent)}
            assert {**stored} == {
                name: perdure.types.RunInfo(**{**_fields(row), "agent_no": stored[name].agent_no})
                for name, row in rebuilt.items()
            }


def _fields(row: perdure.types.RunInfo) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__struct_fields__}


def test_import_refuses_an_agent_that_is_there(export: Path, operator: Operator) -> None:
    before = operator.json("log", "ticket-42", "--all")
    code, said = operator.refused("import", str(export))
    assert code == 4
    assert "is there already" in said
    assert operator.json("log", "ticket-42", "--all") == before


def test_import_makes_a_store_only_when_it_is_told_to(export: Path, tmp_path: Path) -> None:
    new = Operator(tmp_path / "new.db")
    assert new.refused("import", str(export))[0] == 3
    assert not new.path.exists()
    new.see("import", str(export), "--create")
    assert new.json("verify")["ok"]


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def sealed(lines: list[dict[str, Any]]) -> bytes:
    """The file of these lines with a footer that fits: only the chain can find the fault."""
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines[:-1])
    footer = {**lines[-1], "commits": len(lines) - 2, "sha256": sha256(body).hexdigest()}
    return body + json.dumps(footer).encode() + b"\n"


def flip_payload(lines: list[dict[str, Any]]) -> None:
    data = bytearray(base64.b64decode(lines[5]["payload"]))
    data[-1] ^= 1
    lines[5]["payload"] = base64.b64encode(bytes(data)).decode()


def flip_header(lines: list[dict[str, Any]]) -> None:
    header = base64.b64decode(lines[5]["header"]).replace(b"message", b"massage")
    lines[5]["header"] = base64.b64encode(header).decode()


@pytest.mark.parametrize(
    "damage",
    [
        flip_payload,
        flip_header,
        lambda lines: lines.pop(5),
        lambda lines: lines.pop(-2),
        lambda lines: lines.insert(5, lines[6]),
        lambda lines: lines.__setitem__(slice(1, -1), []),
        lambda lines: lines[5].pop("payload"),
        lambda lines: lines[5].update(header="%%%"),
        lambda lines: lines[5].update(header="", payload=""),
        lambda lines: lines[-1].update(root="sha256:00"),
    ],
)
def test_a_forged_file_is_refused_whole(
    export: Path, destination: Operator, damage: Callable[[list[dict[str, Any]]], object]
) -> None:
    lines = lines_of(export)
    damage(lines)
    export.write_bytes(sealed(lines))
    code, said = destination.refused("import", str(export))
    assert code == 5, said
    assert destination.json("ls") == []


def test_a_file_that_is_cut_off_anywhere_is_refused(export: Path, destination: Operator) -> None:
    data = export.read_bytes()
    for end in {0, 1, 50, len(data) // 3, len(data) // 2, len(data) - 40, len(data) - 2}:
        export.write_bytes(data[:end])
        assert destination.refused("import", str(export))[0] == 5
    export.write_bytes(data.replace(b'"branch": "main"', b'"branch": "mian"', 1))
    assert destination.refused("import", str(export))[0] == 5
    export.write_bytes(data + b"{}\n")
    assert destination.refused("import", str(export))[0] == 5
    assert destination.json("ls") == []
    export.write_bytes(data)
    destination.see("import", str(export))


def test_other_files_are_refused(operator: Operator, destination: Operator, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    operator.see("export", "ticket-42", "--state", "-o", str(state))
    code, said = destination.refused("import", str(state))
    assert code == 5
    assert "one state" in said
    assert destination.refused("import", str(tmp_path / "none"))[0] == 2
    newer = tmp_path / "newer"
    newer.write_text('{"perdure_export": 2}\n')
    assert destination.refused("import", str(newer))[0] == 9


def test_a_full_disk_in_the_middle_leaves_nothing(
    export: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Story: an import that wrote commit by commit left an agent that looked whole: its log was a
    true prefix. All commits go into one transaction."""
    path = export.with_name("full.db")
    perdure.open(path).close()
    real, left = sqlite_append.append, 5

    def full(*args: Any, **more: Any) -> Outcome:
        nonlocal left
        left -= 1
        if left == 0:
            raise perdure.StoreUnavailable("the disk is full")
        return real(*args, **more)

    monkeypatch.setattr(sqlite_append, "append", full)
    code, _ = Operator(path).refused("import", str(export))
    assert code == 6
    monkeypatch.undo()
    assert Operator(path).json("ls") == []
    Operator(path).see("import", str(export))


def test_export_of_a_state(operator: Operator) -> None:
    document = json.loads(operator.see("export", "ticket-42", "--state", "--at", "3"))
    assert document["seq"] == 3
    assert document["state"] == operator.json("state", "ticket-42", "--at", "3")["state"]
    assert operator.refused("export", "ticket-42", "--at", "3")[0] == 2


def test_a_file_is_whole_or_not_there(operator: Operator, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    operator.see("export", "ticket-42", "-o", str(path))
    whole = path.read_bytes()
    assert operator.refused("export", "ticket-42", "-o", str(path))[0] == 4
    assert operator.refused("export", "nobody", "--force", "-o", str(path))[0] == 3
    assert path.read_bytes() == whole
    operator.see("export", "ticket-42", "--force", "-o", str(path))
    assert operator.refused("export", "ticket-42", "-o", str(tmp_path / "no" / "out"))[0] == 2
    assert not [name for name in tmp_path.iterdir() if name.suffix == ".part"]


def test_an_export_leaves_a_device_a_device(operator: Operator, tmp_path: Path) -> None:
    """`export -o /dev/null --force`, typed by root, put a plain file in the place of the machine's
    /dev/null. A link was replaced, too, and not what it led to."""
    pipe, link, kept = tmp_path / "pipe", tmp_path / "link", tmp_path / "kept.jsonl"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for force in ((), ("--force",)):
        operator.see("export", "ticket-42", "-o", str(pipe), *force)
        assert stat.S_ISFIFO(os.stat(pipe).st_mode)
        assert os.read(reader, 1 << 20).startswith(b"{")
    os.close(reader)
    kept.write_bytes(b"before")
    link.symlink_to(kept)
    operator.see("export", "ticket-42", "-o", str(link), "--force")
    assert link.is_symlink()
    assert kept.read_bytes().startswith(b"{")


def test_an_export_replaces_no_store(operator: Operator, tmp_path: Path) -> None:
    """`export ticket-42 -o agents.db --force`, where agents.db was the store itself, left of all
    agents one, as text."""
    other, link = tmp_path / "other.db", tmp_path / "link.db"
    with perdure.open(other) as store:
        store.agent("kept", initial={}).checkpoint("c")
    link.symlink_to(operator.path)
    before = operator.see("ls")
    for path in (operator.path, link, other):
        code, words = operator.refused("export", "ticket-42", "-o", str(path), "--force")
        assert code == 4 and "is a store" in words
    assert operator.see("ls") == before
    with perdure.open(other) as store:
        assert store.agent("kept").exists


def test_a_minus_is_stdout(operator: Operator, tmp_path: Path) -> None:
    there = operator.see("export", "ticket-42", "-o", "-").splitlines()
    assert there[1:-1] == operator.see("export", "ticket-42").splitlines()[1:-1]  # but for times
    assert len(there) > 3 and not os.path.exists("-")


def test_a_deleted_incarnation_and_the_next(operator: Operator, destination: Operator) -> None:
    first = operator.path.with_name("first.jsonl")
    second = operator.path.with_name("second.jsonl")
    with perdure.open(operator.path) as store:
        store.delete("ticket-42")
    operator.see("export", "ticket-42", "-o", str(first))
    with perdure.open(operator.path) as store:
        store.agent("ticket-42").save({"again": True}, "anew")
    operator.see("export", "ticket-42", "-o", str(second))
    destination.see("import", str(first))
    assert destination.json("ls") == []
    destination.see("import", str(second))
    assert destination.json("ls")[0]["incarnation"] == 2
    assert destination.refused("import", str(first))[0] == 4


def test_memory_stores_take_logs_too(operator: Operator) -> None:
    with perdure.open(operator.path) as source, perdure.open("memory://") as memory:
        info = source.find("ticket-42")
        assert info is not None
        verified = memory.import_log(source.export_log(info))
        assert memory.agent("ticket-42").verify(anchor=verified.root).commits == info.seq
        with pytest.raises(perdure.Conflict):
            memory.import_log(source.export_log(info))
