"""Threads of LangGraph's own saver come over: whole and compared, or not at all and named."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command

import perdure
from perdure.integrations.langgraph import PerdureSaver
from tests.cli import langgraph_graphs as graphs
from tests.cli.langgraph_graphs import DIES, THREADS, Invoice, alike, at
from tests.cli.operator import Operator
from tests.integrations.langgraph.checkpoints import config, put

ROOT = Path(__file__).resolve().parents[2]
TYPE = "tests.cli.langgraph_graphs:Invoice"


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("langgraph") / "threads.sqlite"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        graphs.fill(saver)
    graphs.settle(path)
    return path


@pytest.fixture
def source(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(original, tmp_path / "threads.sqlite"))


@pytest.fixture(scope="session")
def imported(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    whole = Operator(tmp_path_factory.mktemp("imported") / "agents.db")
    whole.see("import-langgraph", str(original))
    return whole.path


@pytest.fixture
def ready(imported: Path, tmp_path: Path) -> Operator:
    """On a store into which the source was imported before."""
    return Operator(Path(shutil.copy(imported, tmp_path / "agents.db")))


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(tmp_path / "agents.db")


def same(source: Path, target: Path, thread: str, **more: Any) -> int:
    """How many checkpoints LangGraph's saver and ours have of a thread, all alike."""
    with (
        SqliteSaver.from_conn_string(str(source)) as theirs,
        PerdureSaver.from_url(target, **more) as ours,
    ):
        return alike(theirs, ours, thread)


def commits(path: Path) -> dict[str, int]:
    with perdure.open(path, create=False) as store:
        return {info.name: info.seq for info in store.agents()}


# -- all of it -----------------------------------------------------------------------------


def test_every_thread_comes_over_whole(source: Path, operator: Operator) -> None:
    before = hashlib.sha256(source.read_bytes()).digest()
    said = operator.see("import-langgraph", str(source))
    assert hashlib.sha256(source.read_bytes()).digest() == before
    numbers = {thread: same(source, operator.path, thread) for thread in THREADS}
    assert min(numbers.values()) >= 3
    for thread, number in numbers.items():
        assert f"✓ {thread}  {number} checkpoints" in said
    assert f"6 threads, {sum(numbers.values())} checkpoints, every state compared" in said
    assert "new, " in said
    operator.see("verify", "travel")


def test_graphs_go_on_from_where_they_were(ready: Operator) -> None:
    with PerdureSaver.from_url(ready.path) as saver:
        waiting = graphs.review(saver).get_state(at("asked"))
        assert waiting.tasks[0].interrupts[0].value == {"good": "?"}
        found = graphs.review(saver).invoke(Command(resume="yes"), at("asked"))
        assert found["log"] == ["draft", "draft", "said yes"]
        graphs.talk(saver, "chat", 1)
        assert len(graphs.chat(saver).get_state(at("chat")).values["messages"]) == 10
        with pytest.raises(ValueError, match="no second"):
            graphs.fan(saver).invoke(None, at("fan/größe"))


def test_forks_are_lines_of_their_own(source: Path, operator: Operator) -> None:
    operator.see("import-langgraph", str(source), "--thread", "travel")
    names = [branch["name"] for branch in operator.json("branches", "travel")["branches"]]
    assert sorted(names) == ["main", "main~2", "main~3"]
    assert list(commits(operator.path)) == ["travel"]


def test_the_index_of_each_write_is_kept(
    source: Path, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LangGraph repeats a task's writes when it resumes; those that are there must count."""
    here: set[Any] = set()
    real = PerdureSaver.put_writes

    def noting(self: Any, at: Any, writes: Any, task: str, path: str = "") -> None:
        where = at["configurable"]
        for index, (channel, _) in enumerate(writes):
            number = WRITES_IDX_MAP.get(channel, index)
            here.add((*list(where.values())[:3], task, path, number, channel))
        real(self, at, writes, task, path)

    monkeypatch.setattr(PerdureSaver, "put_writes", noting)
    operator.see("import-langgraph", str(source))
    connection = sqlite3.connect(source)
    there = connection.execute(
        "SELECT thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel "
        "FROM writes"
    )
    assert here == set(there)
    connection.close()


def test_json(source: Path, operator: Operator) -> None:
    said = operator.json("import-langgraph", str(source))
    assert [one["thread"] for one in said["threads"]] == THREADS
    assert said["left"] == [] and said["store"]["bytes_before"] == 0
    assert all(one["imported"] == one["checkpoints"] for one in said["threads"])
    assert all(one["bytes_after"] > 0 for one in said["threads"])
    again = operator.json("import-langgraph", str(source))
    assert all(one["there_already"] == one["checkpoints"] for one in again["threads"])


# -- again, and after a crash --------------------------------------------------------------


def test_again_writes_nothing_and_then_only_what_is_new(source: Path, ready: Operator) -> None:
    before = commits(ready.path)
    assert "all there already" in ready.see("import-langgraph", str(source))
    assert commits(ready.path) == before
    with SqliteSaver.from_conn_string(str(source)) as saver:
        graphs.review(saver).invoke(Command(resume="yes"), at("asked"))
        graphs.talk(saver, "chat", 1)
    ready.see("import-langgraph", str(source))
    after = commits(ready.path)
    assert {name for name in before if before[name] != after[name]} == {"asked", "chat"}
    assert same(source, ready.path, "asked") and same(source, ready.path, "chat")


@pytest.mark.parametrize(("call", "number"), [("put_writes", 9), ("list", 3)])
def test_killed_in_the_middle_it_goes_on(
    source: Path, operator: Operator, imported: Path, call: str, number: int
) -> None:
    """Between a checkpoint and its writes, and before they were compared."""
    words = ["import-langgraph", str(source), "--store", str(operator.path)]
    done = subprocess.run(
        [sys.executable, "-c", DIES, call, str(number), *words],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert commits(operator.path)
    operator.see("import-langgraph", str(source))
    assert commits(operator.path) == commits(imported), "nothing came over twice"
    for thread in THREADS:
        assert same(source, operator.path, thread)


def test_a_thread_that_was_deleted_here_comes_anew(source: Path, ready: Operator) -> None:
    with PerdureSaver.from_url(ready.path) as saver:
        saver.delete_thread("chat")
    ready.see("import-langgraph", str(source))
    assert same(source, ready.path, "chat")


def test_one_that_is_there_and_differs(source: Path, ready: Operator) -> None:
    with PerdureSaver.from_url(ready.path) as saver:
        found = list(saver.list(at("chat")))[2]
        found.checkpoint["channel_values"]["messages"][1].content = "forged"
        parent: Any = found.parent_config
        saver.put(parent, found.checkpoint, found.metadata, {})
    before = commits(ready.path)
    result = ready.type("import-langgraph", str(source))
    assert result.exit_code == 1
    identity = found.checkpoint["id"]
    said = " ".join(result.stderr.split())
    assert f"thread chat: checkpoint {identity}: is in the store already" in said
    assert "state.messages[1].content: 'a 1' in the source, 'forged' in the store" in said
    assert "1 thread left: chat" in result.stdout and "5 threads" in result.stdout
    assert commits(ready.path) == before


def test_writes_that_are_there_and_differ(source: Path, ready: Operator) -> None:
    with PerdureSaver.from_url(ready.path) as saver:
        head: Any = saver.get_tuple(at("asked"))
        saver.put_writes(head.config, [("log", ["forged"])], "another-task")
    result = ready.type("import-langgraph", str(source))
    assert result.exit_code == 1
    assert f"checkpoint {head.checkpoint['id']}" in result.stderr
    assert "another-task" in result.stderr


def test_what_comes_over_wrong_is_found(
    source: Path, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = PerdureSaver.put

    def careless(self: Any, at: Any, checkpoint: Any, metadata: Any, versions: Any) -> Any:
        if checkpoint["channel_values"].get("log") == ["draft"]:
            values = {**checkpoint["channel_values"], "log": ("draft",)}
            checkpoint = {**checkpoint, "channel_values": values}
        return real(self, at, checkpoint, metadata, versions)

    monkeypatch.setattr(PerdureSaver, "put", careless)
    result = operator.type("import-langgraph", str(source))
    assert result.exit_code == 1
    assert "thread asked: checkpoint" in result.stderr
    said = " ".join(result.stderr.split())
    assert "state.log: ['draft'] (list) in the source, ('draft',) (tuple) in the store" in said
    assert "2 threads left: answered, asked" in result.stdout


# -- types, and what cannot come -----------------------------------------------------------


def test_types_of_the_users_own(source: Path, operator: Operator) -> None:
    with SqliteSaver.from_conn_string(str(source)) as saver:
        graphs.bill(saver, "bill", "plain", Invoice(number="R-1", cents=5))
    result = operator.type("import-langgraph", str(source))
    assert result.exit_code == 1
    assert "thread bill: checkpoint 1" in result.stderr
    assert "state.invoices[1]: a tests.cli.langgraph_graphs.Invoice is not read" in result.stderr
    assert f"--type {TYPE} registers it" in result.stderr
    assert sorted(commits(operator.path)) == THREADS, "of a thread that is left nothing is there"
    operator.see("import-langgraph", str(source), "--type", TYPE)
    assert same(source, operator.path, "bill", types=[Invoice])


def test_types_that_a_script_wrote(
    source: Path, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its classes were in ``__main__``, which is another module in every process."""
    with SqliteSaver.from_conn_string(str(source)) as saver, monkeypatch.context() as patch:
        patch.setattr(Invoice, "__module__", "__main__")
        graphs.bill(saver, "bill", Invoice(number="R-1"), {"deep": [Invoice(number="R-2")]})
    result = operator.type("import-langgraph", str(source), "--thread", "bill")
    assert "--type __main__.Invoice=module:Invoice" in result.stderr
    operator.see("import-langgraph", str(source), "--type", f"__main__.Invoice={TYPE}")
    with PerdureSaver.from_url(operator.path, types={"__main__.Invoice": Invoice}) as ours:
        found: Any = ours.get_tuple(at("bill"))
    first, second = found.checkpoint["channel_values"]["invoices"]
    assert first == Invoice(number="R-1") and second == {"deep": [Invoice(number="R-2")]}


def test_what_only_the_data_names_is_not_imported(
    source: Path, operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil.py").write_text("open('was_here', 'w').close()\nclass Invoice: pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with SqliteSaver.from_conn_string(str(source)) as saver, monkeypatch.context() as patch:
        patch.setattr(Invoice, "__module__", "evil")
        graphs.bill(saver, "bill", Invoice(number="R-1"))
    connection = sqlite3.connect(source)
    with connection:
        connection.execute(
            "UPDATE checkpoints SET type = 'pickle' WHERE thread_id = 'chat' AND "
            "parent_checkpoint_id IS NULL"
        )
        envelope = {"lc": 2, "type": "constructor", "id": ["evil", "Invoice"], "kwargs": {}}
        connection.execute(
            "UPDATE writes SET type = 'json', value = ? WHERE thread_id = 'travel'",
            (json.dumps([envelope]).encode(),),
        )
    connection.close()
    result = operator.type("import-langgraph", str(source))
    assert result.exit_code == 1 and not (tmp_path / "was_here").exists()
    assert "3 threads left: bill, chat, travel" in result.stdout
    assert "it was pickled: reading it would run code" in result.stderr
    assert "[0]: a evil.Invoice is not read: its type is not registered" in result.stderr


def test_names_that_no_agent_can_have(source: Path, operator: Operator) -> None:
    long = "x" * 300
    with SqliteSaver.from_conn_string(str(source)) as saver:
        graphs.talk(saver, long, 1)
    result = operator.type("import-langgraph", str(source))
    assert result.exit_code == 1
    assert f"left: thread {long}: " in result.stderr
    assert sorted(commits(operator.path)) == THREADS


def test_an_agent_of_that_name_is_left_alone(source: Path, operator: Operator) -> None:
    with perdure.open(operator.path) as store:
        store.agent("chat").save({"mine": True}, "mine")
    result = operator.type("import-langgraph", str(source))
    assert result.exit_code == 1 and "1 thread left: chat" in result.stdout
    assert operator.json("state", "chat")["state"] == {"mine": True}


def test_secrets_and_orphans_are_left_out_and_said(source: Path, operator: Operator) -> None:
    with SqliteSaver.from_conn_string(str(source)) as saver:
        graphs.chat(saver).invoke({"messages": []}, {**at("rich"), "metadata": {"api_key": "s3"}})
        saver.put_writes(config("rich", "1f-not-there"), [("log", 1)], "task")
    result = operator.type("import-langgraph", str(source))
    assert result.exit_code == 0
    assert "metadata api_key" in result.stderr
    assert "1 write for checkpoints that are not there" in result.stderr
    assert b"s3" not in result.stdout_bytes


def test_checkpoints_of_old_formats(source: Path, operator: Operator) -> None:
    """JSON, with `pending_sends`, and writes without a path: as LangGraph shows them."""
    connection = sqlite3.connect(source)
    message = {
        "lc": 2,
        "type": "constructor",
        "method": [None, "construct"],
        "id": ["langchain_core", "messages", "human", "HumanMessage"],
        "args": [],
        "kwargs": {"content": "Hi", "type": "human", "id": "1"},
    }
    old = {
        "v": 1,
        "id": "1ef4f797-8335-6428-8001-8a1503f9b875",
        "ts": "2024-07-31T20:14:19.804150+00:00",
        "pending_sends": [],
        "channel_values": {"messages": [message], "n": 1.5},
        "channel_versions": {"messages": "00000000000000000000000000000002.0.5", "n": 2},
        "versions_seen": {"node": {"messages": 1}},
        "current_tasks": {},
    }
    with connection:
        connection.execute(
            "INSERT INTO checkpoints VALUES ('old', '', ?, NULL, 'json', ?, ?)",
            (old["id"], json.dumps(old).encode(), b'{"source": "loop", "step": 1, "writes": {}}'),
        )
        connection.execute("ALTER TABLE writes DROP COLUMN task_path")
        connection.execute(
            "INSERT INTO writes VALUES ('old', '', ?, 'task', 0, 'n', 'json', ?)",
            (old["id"], b"[1, 2]"),
        )
    connection.close()
    operator.see("import-langgraph", str(source), "--thread", "old")
    with PerdureSaver.from_url(operator.path) as ours:
        found: Any = ours.get_tuple(at("old"))
    assert found.checkpoint["v"] == 1 and found.checkpoint["pending_sends"] == []
    assert found.checkpoint["channel_values"]["messages"][0].content == "Hi"
    assert found.pending_writes == [("task", "n", [1, 2])]
    assert same(source, operator.path, "old") == 1


def test_pruned_threads_and_several_beginnings(source: Path, operator: Operator) -> None:
    connection = sqlite3.connect(source)
    with connection:  # the two oldest are gone
        connection.execute(
            "DELETE FROM checkpoints WHERE checkpoint_id IN (SELECT checkpoint_id FROM checkpoints "
            "WHERE thread_id = 'chat' ORDER BY checkpoint_id LIMIT 2)"
        )
    connection.close()
    with SqliteSaver.from_conn_string(str(source)) as saver:
        for number in range(2):
            put(saver, {"n": number}, config("roots"))  # type: ignore[arg-type]
    operator.see("import-langgraph", str(source))
    assert same(source, operator.path, "chat") and same(source, operator.path, "roots") == 2


# -- the file ------------------------------------------------------------------------------


def test_a_file_that_is_being_written_to(source: Path, operator: Operator) -> None:
    """What is in the WAL is seen, what is not committed is not, and nobody waits."""
    with SqliteSaver.from_conn_string(str(source)) as saver:
        graphs.talk(saver, "new", 1)
        assert source.with_name("threads.sqlite-wal").stat().st_size
        saver.conn.execute("BEGIN IMMEDIATE")
        saver.conn.execute("DELETE FROM checkpoints WHERE thread_id = 'chat'")
        operator.see("import-langgraph", str(source))
        saver.conn.rollback()
    assert sorted(commits(operator.path)) == sorted([*THREADS, "new"])


def test_a_copy_that_is_read_only(source: Path, operator: Operator) -> None:
    folder = source.with_name("cold")
    folder.mkdir()
    cold = Path(shutil.copy(source, folder))
    cold.chmod(0o444)
    folder.chmod(0o555)
    try:
        operator.see("import-langgraph", str(cold), "--thread", "chat")
    finally:
        folder.chmod(0o755)


def test_a_half_written_copy_that_is_read_only(
    source: Path, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot of the disk, from the middle of a transaction. The journal with the pages as they
    were before was ignored: what the transaction had written so far came over."""
    killed = (
        "import os, sqlite3, sys; db = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "db.executescript('PRAGMA journal_mode=delete; PRAGMA cache_size=1; BEGIN;"
        "UPDATE writes SET value = zeroblob(length(value));"
        "UPDATE checkpoints SET checkpoint = zeroblob(length(checkpoint))'); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", killed, str(source)], check=False)
    assert source.with_name("threads.sqlite-journal").stat().st_size
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "-journal" in operator.refused("import-langgraph", str(source))[1]


def run_script(path: Path, script: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


def test_files_that_are_none(operator: Operator, tmp_path: Path) -> None:
    garbage, other, folder = tmp_path / "garbage", tmp_path / "other.db", tmp_path / "folder"
    garbage.write_bytes(os.urandom(10_000))
    run_script(other, "CREATE TABLE checkpoints (thread_id TEXT);")
    folder.mkdir()
    for path, code, words in (
        (garbage, 9, "is not a SQLite database"),
        (other, 9, "has no column 'checkpoint'"),
        (folder, 9, "is a folder"),
        (tmp_path / "nowhere", 3, "there is no such file"),
    ):
        found = operator.refused("import-langgraph", str(path))
        assert found[0] == code and words in found[1] and str(path) in found[1]
    run_script(other, "DROP TABLE checkpoints; CREATE TABLE x (y);")
    assert "has no table 'checkpoints'" in operator.refused("import-langgraph", str(other))[1]
    assert not operator.path.exists()


def test_a_damaged_file(source: Path, operator: Operator) -> None:
    with open(source, "r+b") as stream:
        stream.seek(4096 * 2)
        stream.write(os.urandom(4096 * 6))
    result = operator.type("import-langgraph", str(source))
    assert result.exit_code in (1, 5)
    assert "cannot be read" in result.stderr


def test_checkpoints_that_are_none(source: Path, operator: Operator) -> None:
    """Metadata that was a list ended the command with an AttributeError, and the threads behind it
    never came; where it was no JSON at all, nothing said which checkpoint's it was."""
    list_of_nothing = JsonPlusSerializer().dumps_typed([])[1]
    connection = sqlite3.connect(source)
    with connection:
        for thread, change in (
            ("answered", "metadata = '[]'"),
            ("asked", "type = 'pickle'"),
            ("chat", "metadata = '{'"),
            ("diary", f"checkpoint = x'{list_of_nothing.hex()}'"),
        ):
            connection.execute(f"UPDATE checkpoints SET {change} WHERE thread_id = ?", (thread,))
    connection.close()
    result = operator.type("import-langgraph", str(source))
    assert result.exit_code == 1 and "2 threads, " in result.stdout
    assert "4 threads left: answered, asked, chat, diary" in result.stdout
    said = " ".join(result.stderr.split())
    for words in (
        "is not one that LangGraph can continue from: 'metadata' is a list",
        "it was pickled",
        "LangGraph's own saver cannot read it (JSONDecodeError",
        "is not one that LangGraph can continue from: it is a list",
    ):
        assert words in said


def test_a_dry_run_writes_nothing(source: Path, operator: Operator) -> None:
    with SqliteSaver.from_conn_string(str(source)) as saver:
        graphs.bill(saver, "bill", Invoice(number="R-1"))
    result = operator.type("import-langgraph", str(source), "--dry-run")
    assert result.exit_code == 1 and not operator.path.exists()
    assert "6 threads" in result.stdout and "nothing was written" in result.stdout
    assert "1 thread would be left: bill" in result.stdout
    operator.see("import-langgraph", str(source), "--thread", "chat")
    before = commits(operator.path)
    operator.type("import-langgraph", str(source), "--dry-run")
    assert commits(operator.path) == before


def test_wrong_command_lines(source: Path, operator: Operator) -> None:
    code, words = operator.refused("import-langgraph", str(source), "--thread", "chta")
    assert code == 3 and "there is no thread 'chta'" in words and "'chat'" in words
    for given in ("Invoice", "nowhere:Invoice", "tests.cli.langgraph_graphs:Nothing", "json:loads"):
        code, words = operator.refused("import-langgraph", str(source), "--type", given)
        assert code == 2 and f"--type {given}" in words
    code, words = operator.refused("import-langgraph", str(source), "--type", "json:JSONDecoder")
    assert code == 2 and "is not a pydantic model, dataclass, enum or named tuple" in words
    same_file = Operator(source)
    assert "the same file" in same_file.refused("import-langgraph", str(source))[1]
    assert not operator.path.exists()


def test_without_the_library(
    source: Path, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "langgraph.checkpoint.sqlite", None)
    monkeypatch.delitem(sys.modules, "perdure.integrations.langgraph.moving.sqlite", raising=False)
    code, words = operator.refused("import-langgraph", str(source))
    assert code == 2 and "pip install 'perdure[langgraph]'" in words


def test_other_commands_do_without_it() -> None:
    code = (
        "import sys; from perdure.cli.app import app; "
        "app(['--help'], standalone_mode=False); "  # loads them all
        "sys.exit(any(name.startswith('lang') for name in sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True)
    assert ended.returncode == 0, ended.stderr
