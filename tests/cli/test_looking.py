"""Commands that only look: they change nothing, and say what there is."""

import json
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from typer.testing import CliRunner, Result

import perdure
from perdure.cli.app import COMMANDS, app
from perdure.engine.functions import agent_functions
from perdure.engine.functions.agent_functions import AgentFunctions
from perdure.state.jump_commits import commit_move
from tests.cli.operator import Operator, failing
from tests.damaging import Vandal


def test_ls_says_which_agent_stands_still(operator: Operator) -> None:
    lines = operator.see("ls").splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["ticket-42", "ticket-43"]
    assert "executor is gone" in lines[2]
    assert operator.see("ls", "x") == "no agents that begin with x\n"
    found = operator.json("ls", "ticket-43")
    assert [run["id"] for run in found[0]["unfinished_runs"]] == ["ticket-43/support/main"]
    assert operator.json("ls", "nothing") == []


def test_show_says_it_all_and_the_way_out(operator: Operator) -> None:
    shown = operator.see("show", "ticket-43")
    for words in ("schema", "dict 1.0", "main", "executor is gone", "refund#1", "is in doubt"):
        assert words in shown
    assert f"perdure settle ticket-43 'refund#1' --not-done --store {operator.path}" in shown
    said = operator.json("show", "ticket-42")
    assert [branch["name"] for branch in said["branches"]] == ["gone", "main", "what-if"]
    assert [point["name"] for point in said["checkpoints"]] == ["before refund"]
    assert said["in_doubt"] == []
    assert said["sizes"]["commits"] == said["commits"]
    assert [doubt["place"] for doubt in operator.json("show", "ticket-43")["in_doubt"]] == [
        "refund#1"
    ]


def test_log_is_newest_first_and_limited(operator: Operator) -> None:
    every = operator.json("log", "ticket-42")
    seqs = [commit["seq"] for commit in every]
    assert seqs == sorted(seqs, reverse=True)
    assert {commit["branch"] for commit in every} == {"main"}
    assert [c["seq"] for c in operator.json("log", "ticket-42", "-n", "2")] == seqs[:2]
    oldest = operator.json("log", "ticket-42", "--oldest-first", "-n", "3")
    assert [commit["seq"] for commit in oldest] == [1, 2, 3]
    both = operator.json("log", "ticket-42", "--all")
    assert {commit["branch"] for commit in both} == {"main", "what-if", "gone"}
    assert "and there are more" in operator.see("log", "ticket-42", "-n", "2")
    assert "and there are more" not in operator.see("log", "ticket-42", "-n", "0")


def test_log_tells_each_change_with_what_was_before(operator: Operator) -> None:
    shown = operator.see("log", "ticket-42", "--all", "-n", "0")
    for line in (
        "+ state.messages[1] {role: 'user', content: 'Refund me 1'}",
        "~ state.status 'pending' → 'closed'",
        "~ state.status 'pending' → 'refused'",
        "→ refund#1(invoice='i-7', cents=4200)",
        "← refund#1 → {receipt: 'r-1', cents: 4200}",
        "forked what-if from 3",
        "branch deleted: gone",
        "key msg-1",
        "(before refund)",
    ):
        assert line in shown
    # the same words, whichever end it begins at
    forward = operator.see("log", "ticket-42", "--all", "-n", "0", "--oldest-first")
    assert without_ages(forward) == without_ages(shown)


def without_ages(shown: str) -> list[str]:
    return sorted(
        line for line in shown.splitlines() if " ago)" not in line and "(just now)" not in line
    )


def test_log_cuts_long_values_and_p_does_not(operator: Operator) -> None:
    with perdure.open(operator.path) as store, store.agent("ticket-42").edit("long") as draft:
        draft["text"] = "word " * 100
        draft["many"] = list(range(100))
        draft.update({f"k{number}": number for number in range(20)})
    shown = operator.see("log", "ticket-42", "-n", "1")
    assert "word " * 20 not in shown
    assert "more changes; -p shows all" in shown
    whole = operator.see("log", "ticket-42", "-n", "1", "-p")
    assert "word " * 100 in whole
    assert "98, 99]" in whole
    assert "sha256:" in whole


def test_control_characters_never_reach_a_terminal(operator: Operator) -> None:
    with perdure.open(operator.path) as store:
        agent = store.agent("evil\x1b[31m")
        with agent.edit("red \x1b[31m\u202e\nnext") as draft:
            draft["\x1b[2J"] = "\x1b[2J\x9b"
        agent.checkpoint("c\x1b]0;x\x07")
    for command in (["ls"], ["stats"], ["verify"]):
        assert_harmless(operator.see(*command))
        assert_harmless(operator.see(*command, "--json"))
    for command in (["log", "-p"], ["show"], ["branches"], ["state"], ["diff", "1"], ["effects"]):
        words = [command[0], "evil\x1b[31m", *command[1:]]
        assert_harmless(operator.see(*words))
        assert_harmless(operator.see(*words, "--json"))


def assert_harmless(shown: str) -> None:
    assert all(c.isprintable() or c == "\n" for c in shown.replace("\u202e", "")), repr(shown)


def test_state_at_every_kind_of_place(operator: Operator) -> None:
    head = operator.json("state", "ticket-42")["state"]
    assert head["status"] == "closed"
    assert head["price"] == {"$decimal": "1.10"}
    assert head["due"] == {"$datetime": "2026-09-01T00:00:00+00:00"}
    assert len(operator.json("state", "ticket-42", "--at", "3")["state"]["messages"]) == 1
    named = operator.json("state", "ticket-42", "--at", "before refund")
    assert "invoice" not in named["state"]
    assert operator.json("state", "ticket-42", "--at", "what-if")["state"]["status"] == "refused"
    assert operator.json("state", "ticket-42", "-b", "what-if")["state"]["status"] == "refused"
    moment = datetime.now(UTC).isoformat()
    assert operator.json("state", "ticket-42", "--at", moment)["state"] == head
    at_z = moment.replace("+00:00", "Z")
    assert operator.json("state", "ticket-42", "--at", at_z)["state"] == head
    assert json.loads(operator.see("state", "ticket-42")) == head


def test_digits_are_a_seq_and_dates_need_a_zone(operator: Operator) -> None:
    with perdure.open(operator.path) as store:
        store.agent("ticket-42").checkpoint("2026-01-01")
        older = store.agent("ticket-42")._working  # as an older program could
        commit_move(older, older.seq, older.seq, perdure.Cause("fork", "3"), branch="3")
    assert operator.json("state", "ticket-42", "--at", "3")["seq"] == 3
    assert operator.json("state", "ticket-42", "--at", "2026-01-01")["seq"] > 3
    for words in ("2026-01-02", "2026-01-02T10:00:00", "2026-01-02 10:00"):
        code, said = operator.refused("state", "ticket-42", "--at", words)
        assert code == 2
        assert "zone" in said or "moment" in said
    assert operator.refused("state", "ticket-42", "--at", "2026-01-02T10:00:00Z")[0] == 3
    assert operator.refused("state", "ticket-42", "--at", "2026-99-99")[0] == 3
    assert operator.refused("state", "ticket-42", "--at", "999")[0] == 3


def test_diff(operator: Operator) -> None:
    shown = operator.see("diff", "ticket-42", "3", "main").splitlines()
    assert "~ state.status 'pending' → 'closed'" in shown
    changes = {one["path"]: one for one in operator.json("diff", "ticket-42", "3", "what-if")}
    assert changes == {
        "state.status": {
            "path": "state.status",
            "kind": "changed",
            "before": "pending",
            "after": "refused",
        }
    }
    assert operator.see("diff", "ticket-42", "3", "3") == "nothing differs\n"
    assert operator.json("diff", "ticket-42", "3", "3") == []


def test_branches_and_checkpoints(operator: Operator) -> None:
    shown = operator.see("branches", "ticket-42")
    assert "what-if" in shown
    assert "before refund" in shown
    assert "\ngone" not in shown
    assert "\ngone" in operator.see("branches", "ticket-42", "--all")
    said = operator.json("branches", "ticket-42")
    assert [one["name"] for one in said["branches"]] == ["main", "what-if"]


def test_stats(operator: Operator) -> None:
    said = operator.json("stats")
    assert {row["agent"] for row in said["agents"]} == {"ticket-42", "ticket-43"}
    assert sum(row["commits"] for row in said["agents"]) == said["store"]["commits"]
    assert all(row["log_bytes_last_day"] <= row["log_bytes"] for row in said["agents"])
    assert "in all 2 agents" in operator.see("stats")
    assert "in all" not in operator.see("stats", "ticket-42")


def test_a_mistyped_name_creates_nothing(operator: Operator) -> None:
    before = operator.path.read_bytes()
    for command, *rest in (
        ("show",),
        ("log",),
        ("state",),
        ("diff", "1"),
        ("branches",),
        ("stats",),
        ("undo",),
        ("redo",),
        ("fork", "x"),
        ("checkpoint", "x"),
        ("rollback", "1"),
        ("effects",),
        ("settle", "refund#1", "--not-done"),
        ("verify",),
        ("export",),
        ("runs",),
    ):
        code, said = operator.refused(command, "tickt-42", *rest)
        assert code == 3
        assert "did you mean ticket-42" in said, command
    for words in (["log", "ticket-42", "-b", "mian"], ["undo", "ticket-42", "-b", "gone"]):
        code, said = operator.refused(*words)
        assert code == 3
        assert "there are: main, what-if" in said
    assert operator.path.read_bytes() == before


def test_a_mistyped_store_creates_nothing(tmp_path: Path) -> None:
    operator = Operator(tmp_path / "none.db")
    assert operator.refused("ls")[0] == 3
    assert list(tmp_path.iterdir()) == []
    empty = tmp_path / "empty.db"
    empty.touch()
    assert Operator(empty).refused("ls")[0] == 9
    assert empty.read_bytes() == b""
    assert Operator(tmp_path).refused("ls")[0] == 9
    text = tmp_path / "text.txt"
    text.write_text("not a database at all, but long enough to be taken for one" * 20)
    assert Operator(text).refused("ls")[0] == 9
    assert Operator(Path("ftp:") / "x").refused("ls")[0] in (2, 3)


def test_a_deleted_agent_is_said_to_be_so(operator: Operator) -> None:
    with perdure.open(operator.path) as store:
        store.delete("ticket-42")
    code, said = operator.refused("show", "ticket-42")
    assert code == 3
    assert "was deleted" in said
    assert "agent deleted" in operator.see("log", "ticket-42", "--all")
    assert operator.json("verify", "ticket-42")["ok"]


def test_every_command_answers_in_json(operator: Operator) -> None:
    """The list that this goes by is the command line's own, so that no command is forgotten."""
    asked = {
        "ls": [],
        "show": ["ticket-42"],
        "log": ["ticket-42"],
        "state": ["ticket-42"],
        "diff": ["ticket-42", "1"],
        "branches": ["ticket-42"],
        "stats": [],
        "fork": ["ticket-42", "new"],
        "checkpoint": ["ticket-42", "point"],
        "undo": ["ticket-42"],
        "redo": ["ticket-42"],
        "rollback": ["ticket-42", "3"],
        "runs": [],
        "tree": ["ticket-42"],
        "backup": [str(operator.path.with_name("copy.db"))],
        "effects": ["ticket-43"],
        "settle": ["ticket-43", "refund#1", "--not-done"],
        "why": ["ticket-43"],
        "answer": ["ticket-43"],
        "questions": [],
        "signal": ["ticket-43", "go"],
        "cancel": ["ticket-43/support/main"],
        "retry": ["ticket-43/support/main", "--from", "lookup#1"],
        "resume": ["--all", "--agent", "ticket-43", "--yes"],
        "verify": [],
        "repair": [],
        "export": ["ticket-42", "-o", str(operator.path.with_name("out.jsonl"))],
    }
    elsewhere = {"import", "import-langgraph", "worker"}
    elsewhere |= {"replicate", "promote", "migrate", "restore"}  # see test_replicate
    elsewhere |= {"purge", "trim"}  # see test_purge, test_trim
    elsewhere |= {"start", "delete"}  # see test_starting, test_deleting
    assert {name for name, *_ in COMMANDS} == {*asked, *elsewhere}
    for command, words in asked.items():
        result = operator.type(command, *words, "--json")
        assert result.exit_code == 0, result.output
        assert result.stderr == ""
        json.loads(result.stdout)
    destination = Operator(operator.path.with_name("other.db"))
    assert destination.json("import", asked["export"][2], "--create")["agent"] == "ticket-42"


def test_verify_beside_a_busy_writer(operator: Operator) -> None:
    """Story: verify compared the log that it had read with branches as they were at its end; on an
    agent at work it reported damage where there was none."""
    stop = threading.Event()

    def write() -> None:
        with perdure.open(operator.path, durability="os") as store:
            agent = store.agent("ticket-42")
            number = 0
            while not stop.is_set():
                number += 1
                with agent.edit("live") as draft:
                    draft["n"] = number

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = [operator.json("verify")["agents"][0]["commits"] for _ in range(8)]
        assert operator.json("state", "ticket-42")["state"]["n"] > 0
    finally:
        stop.set()
        writer.join()
    assert seen == sorted(seen)
    assert seen[0] < seen[-1]


def test_a_failed_run_is_seen_and_says_why(operator: Operator) -> None:
    """Story: an agent whose run had failed looked fine in `ls`, and `runs` did not say why."""
    with perdure.open(operator.path) as store, pytest.raises(ValueError, match="no such"):
        store.run(failing, "ticket-42")
    listed = operator.see("ls").splitlines()
    assert "  runs not done  " in listed[0]
    assert "  failed  " in listed[1]
    assert operator.json("ls")[0]["failed_runs"][0]["problem"].startswith("ValueError")
    for command in (["runs"], ["show", "ticket-42"]):
        assert "ValueError: no such \\x1b[31minvoice" in operator.see(*command)
    assert "run failed: failing" in operator.see("log", "ticket-42", "-n", "1")


def test_lists_are_limited_and_say_so(operator: Operator) -> None:
    shown = operator.see("ls", "-n", "1")
    assert "ticket-43" not in shown
    assert "there are more: -n 0 for all" in shown
    assert "there are more" not in operator.see("ls", "-n", "2")
    shown = operator.see("effects", "ticket-43", "-n", "1")
    assert "lookup#1(" not in shown
    assert "… 1 more (-n 0 for all)" in shown
    assert len(operator.json("effects", "ticket-43")) == 2


def test_a_place_that_is_none_says_which_there_are(operator: Operator) -> None:
    code, said = operator.refused("state", "ticket-42", "--at", "yesterday")
    assert code == 3
    for words in ("main", "before refund", "a commit's seq", "a moment with its zone"):
        assert words in said


def test_verify_does_not_say_to_run_verify(operator: Operator) -> None:
    """Story: `verify` answered with "run `perdure verify`", once more for each agent, and left the
    arrow of its hint inside the text that scripts read."""
    data = operator.path.read_bytes()
    at = data.index(b"what-if")
    operator.path.write_bytes(data[:at] + b"W" + data[at + 1 :])
    shown = operator.type("verify").stdout
    assert "run `perdure verify`" not in shown
    assert shown.count("restore the store from a copy") == 1
    result = operator.type("verify", "--json")
    faults = [one for one in json.loads(result.stdout)["agents"] if not one["ok"]]
    assert faults
    for fault in faults:
        assert "→" not in fault["error"]
        assert "restore the store" in fault["hint"]
    error = json.loads(result.stderr)
    assert "perdure verify" not in error["hint"]


@pytest.fixture
def one_damaged(operator: Operator) -> Operator:
    """With an agent, between two others, whose last header no reader understands."""
    with perdure.open(operator.path) as store:
        store.agent("ticket-42b").save({"n": 1})
        Vandal(store, "ticket-42b").damage("an epoch below 0")
    return operator


def test_ls_lists_the_others_where_one_is_damaged(one_damaged: Operator) -> None:
    """One agent whose log could not be read, and `ls` said that, and nothing of all the others."""
    found = one_damaged.type("ls")
    lines = found.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["ticket-42", "ticket-42b", "ticket-43"]
    assert "damaged" in lines[2] and "executor is gone" in lines[3]
    assert found.exit_code == 5
    assert "agent 'ticket-42b'" in found.stderr and "verify" in found.stderr
    found = one_damaged.type("ls", "--json")
    said = json.loads(found.stdout)
    assert ["damaged" in one for one in said] == [False, True, False]
    assert "its header is malformed" in said[1]["damaged"]
    assert json.loads(found.stderr)["exit_code"] == found.exit_code == 5
    assert one_damaged.see("ls", "ticket-43")  # whoever does not ask for it is not bothered


def test_stats_measures_the_others_where_one_is_damaged(one_damaged: Operator) -> None:
    """One agent whose log could not be read, and `stats` said that, and no size of any other."""
    found = one_damaged.type("stats")
    lines = {line.split()[0]: line for line in found.stdout.splitlines() if line}
    assert "damaged" in lines["ticket-42b"] and "+" in lines["ticket-43"]
    assert "3 agents" in found.stdout
    assert found.exit_code == 5
    assert "agent 'ticket-42b'" in found.stderr
    found = one_damaged.type("stats", "--json")
    said = {one["agent"]: one for one in json.loads(found.stdout)["agents"]}
    assert "its header is malformed" in said["ticket-42b"]["damaged"]
    assert said["ticket-43"]["commits_last_day"] > 0


def test_nothing_is_filled_with_blanks_where_nobody_looks(operator: Operator) -> None:
    """A line of `why` was filled up to the width that stands for "no terminal": 100,000 bytes."""
    for words in (["why", "ticket-43"], ["show", "ticket-43"], ["ls"], ["runs"]):
        assert max(map(len, operator.see(*words).splitlines())) < 500


def test_what_can_be_no_store_is_said_to_be_none(tmp_path: Path) -> None:
    """A folder was "unavailable", as if another try could help; and of a store in this command's
    own memory it was said that it has no agents."""
    code, said = Operator(tmp_path).refused("ls")
    assert code == 9 and "is a folder" in said
    for url in ("memory://", "memory://name"):
        found = run_on(url, "ls")
        assert found.exit_code == 2 and "memory of the process" in found.stderr


def run_on(url: str, *words: str) -> Result:
    made: Any = CliRunner().invoke(app, [*words, "--store", url])
    return made  # type: ignore[no-any-return]


def test_the_log_of_a_run_that_waits_says_for_what_and_what_came(tmp_path: Path) -> None:
    """Story: it said `run-waiting wanting` and `message-refused wait_for:note#1`, and neither what
    was waited for, nor what was refused and why, nor who had answered."""
    path = tmp_path / "waiting.db"

    @perdure.agent(dict)
    def wanting(run: Any) -> bool:
        run.wait_for("note", schema=str)
        return bool(run.ask("Go on?"))

    with perdure.open(path) as store:
        handle = store.start(wanting, "a")
        worker = perdure.Worker(store, [wanting])
        thread = threading.Thread(target=lambda: worker.run(signals=False))
        thread.start()
        try:
            for waits, act in (
                ("signal 'note'", lambda: handle.signal("note", 5)),
                ("signal 'note'", lambda: handle.signal("note", "text")),
                ("Go on?", lambda: handle.answer(True, by="ann")),
            ):
                seq = store.agent("a").seq
                until = time.monotonic() + 60
                while waits not in handle.info.waits:
                    assert time.monotonic() < until
                    time.sleep(0.01)
                act()
                while store.agent("a").seq == seq:
                    assert time.monotonic() < until
                    time.sleep(0.01)
            assert handle.result(60) is True
        finally:
            worker.stop()
            thread.join()
    said = Operator(path).see("log", "a")
    for words in (
        "run waits: wanting  for signal 'note'",
        "run goes on: wanting",
        "refused at wait_for:note#1: value: Expected `str`, got `int`",
        "← wait_for:note#1 → 'text'",
        "for an answer to 'Go on?'",
        "← ask#1 → True  from ann",
    ):
        assert words in said, said


def test_a_run_whose_version_nobody_has_says_so(operator: Operator) -> None:
    """Story: a deploy was taken back. What it had asked for was "pending, not begun", and nothing
    said that the workers there were of another version."""

    def version(number: str) -> Any:
        @perdure.agent(dict, name="greet", version=number)
        def greet(run: Any) -> str:
            return number

        return greet

    with perdure.open(operator.path) as store:
        store.start(version("2"), "guest")
        with patch.dict(agent_functions._versions, clear=True):  # another program
            store.options(key="later").start(old := version("1"), "guest")
            end = store.runner.liveness.serve(AgentFunctions([old]).served(["default"]))
        shown = operator.see("runs", "guest")
        missing = "no living worker serves version '2' of function 'greet'"
        assert shown.count(f"has not begun: {missing}") == 2, "in the list, and below"
        assert "version" in shown.splitlines()[0]
        assert "there is a worker for greet '1'" in operator.see("why", "guest/greet/main")
        assert "serves version '1'" in operator.see("why", "guest/greet/later")
        end()
