"""`replicate`, `promote`, `migrate` and `restore`, as an operator types them."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import perdure
from perdure import Corrupt
from perdure.cli.app import app
from perdure.model import Commit
from perdure.replication import Follower, promote
from perdure.storage.locate import locate
from perdure.storage.standing import Why
from perdure.transfer.incoming_log import LogEnd
from tests.cli.operator import Operator
from tests.postgres.server import shared


def type_in(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


def see(*words: str) -> str:
    result = type_in(*words)
    assert result.exit_code == 0, result.output
    return str(result.stdout)


def see_json(*words: str) -> Any:
    return json.loads(see(*words, "--json"))


def refused(*words: str) -> tuple[int, Any]:
    result = type_in(*words, "--json")
    assert result.stdout == ""
    return result.exit_code, json.loads(result.stderr)


@pytest.fixture
def source(operator: Operator) -> str:
    return str(operator.path)


@pytest.fixture
def target(tmp_path: Path) -> str:
    return str(tmp_path / "copy.db")


def write(path: str, value: object) -> None:
    with perdure.open(path) as store:
        store.agent("ticket-43").save({"value": value}, "written")


def test_a_copy_is_made_and_kept_up_to_date(operator: Operator, source: str, target: str) -> None:
    said = see_json("replicate", source, target)
    assert said["lag"] == {"commits": 0, "seconds": 0.0}
    assert said["commits"] > 10
    assert said["target"].endswith("copy.db")
    write(source, 1)
    assert "1 commit, 0 messages; up to date" in see("replicate", source, target)
    for words in (["log", "ticket-42", "--all"], ["runs"], ["state", "ticket-43"], ["verify"]):
        assert Operator(Path(target)).json(*words) == operator.json(*words)


def test_a_copy_refuses_writes_and_says_the_way_out(source: str, target: str) -> None:
    see("replicate", source, target)
    code, said = refused("--store", target, "undo", "ticket-42")
    assert code == 6
    assert "follows" in said["problem"] and "promote" in said["hint"]
    assert said["retry"] is False


def test_a_hand_over(operator: Operator, source: str, target: str) -> None:
    see("replicate", source, target)
    write(source, "late")
    said = see_json("promote", target)
    assert (said["lossless"], said["commits"]) == (True, 1)
    code, told = refused("--store", source, "undo", "ticket-42")
    assert code == 6
    assert "copy.db" in told["problem"]
    write(target, "new")
    assert refused("promote", source)[0] == 4


def test_what_was_done_before_is_said_to_be_done(source: str, target: str, tmp_path: Path) -> None:
    """A `promote` or `migrate` that was killed in its last moment had done all. Called again, as
    its page tells, it ended with exit code 4 each time: a loop until it is through never ended."""
    see("replicate", source, target)
    see("promote", target)
    again = see_json("promote", target)
    assert (again["promoted"], again["lossless"], again["commits"]) == (target, None, 0)
    assert "it was promoted before" in see("promote", target)
    write(target, "new")
    assert "it was promoted before" in see("promote", target, "--source-is-lost")
    moved = str(tmp_path / "moved.db")
    see("migrate", target, moved)
    assert see_json("migrate", target, moved)["agents"] == []
    write(moved, "on")
    assert "all was moved there before" in see("migrate", target, moved)
    # What stands there now is another store: nobody may take it for the one that has the agents.
    Path(moved).rename(moved + ".away")
    code, said = refused("migrate", target, moved)
    assert code == 4 and "moved there already" in said["problem"]
    assert refused("migrate", target, moved + ".other")[0] == 4


def test_a_promotion_without_the_source_must_be_said(source: str, target: str) -> None:
    see("replicate", source, target)
    Path(source).rename(source + ".away")
    code, said = refused("promote", target)
    assert code == 6
    assert "--source-is-lost" in said["hint"]
    shown = see("promote", target, "--source-is-lost")
    assert "is not here" in shown and "commits and messages" in shown
    Path(source + ".away").rename(source)
    write(source, "old")
    write(target, "new")
    code, said = refused("replicate", source, target)
    assert code == 4
    assert "'ticket-43', commit" in said["target"]
    assert refused("replicate", target, source, "--resync")[0] == 4


def test_a_source_that_moved_is_named(source: str, target: str) -> None:
    see("replicate", source, target)
    away = source + ".away"
    Path(source).rename(away)
    assert refused("promote", target)[0] == 6
    assert see_json("promote", target, "--source", away)["lossless"]


def test_a_source_that_handed_over_to_another_is_not_handed_over_by(
    source: str, target: str
) -> None:
    """Of two followers one was promoted. For the other the hint said to promote it as if the source
    were lost, which makes two primaries, or to promote the source, which is refused."""
    see("replicate", source, target)
    other = source + ".other"
    see("replicate", source, other)
    see("promote", other)
    code, said = refused("promote", target)
    assert code == 4 and "was moved to" in said["problem"]
    command = re.search("`perdure (.*)`", said["hint"])
    assert command is not None
    see(*shlex.split(command[1]))
    assert see_json("promote", target)["lossless"]
    assert refused("--store", other, "undo", "ticket-42")[0] == 6


def test_a_primary_does_not_follow_its_own_follower(source: str, target: str) -> None:
    """The two in the wrong order, with --resync: from then on neither took a write, each sent to
    the other, and neither could be promoted."""
    see("replicate", source, target)
    code, said = refused("replicate", target, source, "--resync")
    assert code == 4 and "it follows" in said["problem"]
    see("--store", source, "checkpoint", "ticket-42", "as-before")
    order = re.search(r"run `perdure (.*?)`", said["hint"])
    assert order is not None
    see(*shlex.split(order[1]))
    # As a copy of a copy, which nobody could promote but as if its source were lost.
    other = source + ".other"
    code, said = refused("replicate", target, other)
    follow = re.search(r"follow that one, `perdure (.*?)`", said["hint"])
    assert code == 4 and follow is not None
    see(*shlex.split(follow[1]))
    assert see_json("promote", other)["lossless"]


def test_of_two_that_follow_each_other_one_is_promoted(source: str, target: str) -> None:
    """An older version let them."""
    see("replicate", source, target)
    with perdure.open(source) as store:
        backend = store._context.backend
        with perdure.open(target) as other:
            url = other._context.backend.url
        backend.stand(Why("follows", url).standing())
    code, said = refused("promote", target)
    way = re.search("`perdure (.*?)`", said["hint"])
    assert code == 4 and way is not None
    see(*shlex.split(way[1]))
    see("--store", target, "checkpoint", "ticket-42", "on")
    assert see_json("replicate", target, source, "--resync")["lag"]["commits"] == 0


def test_a_move(operator: Operator, source: str, target: str) -> None:
    before = operator.json("log", "ticket-42", "--all")
    said = see_json("migrate", source, target)
    assert {one["agent"] for one in said["agents"]} == {"ticket-42", "ticket-43"}
    assert said["longest_pause_s"] > 0
    assert Operator(Path(target)).json("log", "ticket-42", "--all") == before
    assert Operator(Path(target)).json("verify")["ok"]
    assert operator.json("log", "ticket-42", "--all") == before
    assert refused("--store", source, "undo", "ticket-42")[0] == 6
    write(target, "on")
    assert see_json("migrate", source, target)["agents"] == []
    words = see("migrate", target, target + ".next")
    assert "2 agents moved; the longest pause was 0." in words


def test_a_moment(operator: Operator, source: str, target: str) -> None:
    log = operator.json("log", "ticket-42", "--all")
    third = next(one for one in log if one["seq"] == 3)
    said = see_json("restore", source, target, "--at", third["at"])
    assert said["commits"] >= 3
    assert Operator(Path(target)).json("verify")["agents"][0]["commits"] == 3
    write(target, "on")
    assert see_json("restore", source, target, "--at", third["at"])["commits"] == 0
    assert "restored before" in see("restore", source, target, "--at", third["at"])
    assert refused("restore", source, target, "--at", log[0]["at"])[0] == 4
    for wrong in ("yesterday", "2026-08-12T14:03:22"):
        assert refused("restore", source, target + ".new", "--at", wrong)[0] == 2
    assert not Path(target + ".new").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("migrate", "{}", "memory://"),
        ("replicate", "{}", "memory://"),
        ("replicate", "memory://", "{}"),
        ("restore", "{}", "memory://", "--at", "2100-01-01T00:00:00Z"),
        ("promote", "memory://"),
        ("promote", "{}", "--source", "memory://"),
    ],
    ids=" ".join,
)
def test_nothing_is_copied_into_the_memory_of_a_command(source: str, words: Any) -> None:
    """Story: a rehearsal, `perdure migrate SRC memory://`, moved all agents into the memory of the
    command itself, said that it was done, and left SRC closed in favour of nothing."""
    code, said = refused(*(one.format(source) for one in words))
    assert code == 2 and "memory of the process" in said["problem"]
    write(source, "on")


def wait_until_copied(process: subprocess.Popen[Any], source: str, target: str) -> None:
    """Waits until a copy has all commits of an agent, as long as the process that copies lives."""
    last = Operator(Path(source)).json("log", "ticket-42", "--all")[-1]["seq"]
    while Operator(Path(target)).json("log", "ticket-42", "--all")[-1]["seq"] != last:
        assert process.poll() is None


def test_a_copy_goes_on_where_nobody_reads_either_stream(source: str, target: str) -> None:
    """Story: `… --follow 2>&1 | logger`, and the logger was killed: what was to be said about that
    on stderr failed as well, and ended the standby."""
    both_ends = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "perdure", "replicate", source, target, "--follow"],
        stdout=both_ends[1],
        stderr=both_ends[1],
    )
    os.close(both_ends[1])
    try:
        assert b"up to date" in os.read(both_ends[0], 1000)
        os.close(both_ends[0])
        for _ in range(3):
            write(source, "unread")
            wait_until_copied(process, source, target)
    finally:
        process.terminate()
        assert process.wait() == 0


def test_a_copy_goes_on_where_nobody_reads_what_it_says(source: str, target: str) -> None:
    """`… --follow | tee log`, and tee was killed: SIGPIPE ended the standby."""
    process = subprocess.Popen(
        [sys.executable, "-m", "perdure", "replicate", source, target, "--follow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        assert "up to date" in process.stdout.readline()
        process.stdout.close()
        write(source, "unread")
        assert "copying goes on without it" in process.stderr.readline()
        write(source, "on")
        wait_until_copied(process, source, target)
    finally:
        process.terminate()
        assert process.wait() == 0
        process.stderr.close()


@pytest.mark.parametrize("json", [(), ("--json",)])
def test_no_command_shows_the_password_of_a_url(source: str, json: tuple[str, ...]) -> None:
    """`restore`, `promote` and `migrate` printed the URLs as they were typed; `promote` did so at
    each failover, where the source is away."""
    one, other, third = (
        shared().new_url().replace("postgresql://perdure", "postgresql://perdure:hush-hush")
        for _ in range(3)
    )
    for command in (
        ("restore", source, one, "--at", "2100-01-01T00:00:00Z"),
        ("restore", source, one, "--at", "2100-01-01T00:00:00Z"),
        ("replicate", one, other),
        ("promote", other),
        ("promote", other),
        ("migrate", other, third),
        ("migrate", other, third),
    ):
        said = see(*json, *command)
        assert "hush-hush" not in said
        assert "postgresql://perdure@" in said or command[0] == "replicate"
    see("replicate", source, source + ".copy")
    away = "postgresql://app:hush-hush@127.0.0.1:1/agents"
    failed = type_in("promote", source + ".copy", "--source", away, *json)
    assert failed.exit_code == 6 and "hush-hush" not in failed.output


def test_a_restore_that_was_ended_names_how_it_goes_on(source: str, target: str) -> None:
    """A `restore` was killed, and called with another moment. It was refused, and told to say
    --resync, which it does not have, and which makes a follower; not what the first moment was."""
    until = 1_900_000_000_123_456
    with closing(locate(source)) as one, closing(locate(target)) as other:
        begun = Follower(one, other, kind="restoring", until=until)
        begun.begin()
        begun.step(limit=2)
    moment = ("--at", "2031-01-01T00:00:00Z")
    code, said = refused("restore", source, target, *moment)
    assert code == 4 and "--resync" not in said["hint"]
    assert refused("migrate", source, target)[1]["hint"] == said["hint"]
    way = re.search("`perdure (.*)`", said["hint"])
    assert way is not None
    see(*shlex.split(way[1]))
    write(target, "on")
    for command, *more in (("restore", *moment), ("migrate",)):
        code, said = refused(command, source, target, *more)
        assert (code, said["hint"]) == (4, "take another store, a new one")


@pytest.mark.parametrize("command", ["replicate", "migrate"])
def test_what_is_not_there_is_not_made(tmp_path: Path, command: str) -> None:
    nowhere, target = str(tmp_path / "none.db"), str(tmp_path / "target.db")
    assert refused(command, nowhere, target)[0] == 3
    assert list(tmp_path.iterdir()) == []
    assert refused(command, "ftp://x", target)[0] == 2


def test_it_follows_until_it_is_told_to_end(source: str, target: str) -> None:
    """As a process of its own: what comes is said line by line; SIGTERM ends it with 0, and all
    that it said is in."""
    process = subprocess.Popen(
        [sys.executable, "-m", "perdure", "replicate", source, target, "--follow", "--json"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        assert first["event"] == "shipped"
        for value in range(3):
            write(source, value)
            said = json.loads(process.stdout.readline())
            assert (said["commits"], said["lag"]["commits"]) == (1, 0)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    with perdure.open(target) as copy:
        assert copy.agent("ticket-43").state == {"value": 2}


def test_it_ends_where_its_copy_was_promoted(source: str, target: str) -> None:
    """A promotion closes the source, so nothing ever came any more by which a follower found out:
    it stood there for ever, said "up to date", and whoever waited for its end did so, too."""
    process = subprocess.Popen(
        [sys.executable, "-m", "perdure", "replicate", source, target, "--follow", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["event"] == "shipped"
        promote(target)
        assert process.wait(30) == 4
        _, said = process.communicate()
        assert "does not follow this source any more" in said
    finally:
        process.kill()
        process.communicate()


def test_an_agent_that_cannot_be_copied_is_named(
    source: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are copied; the exit code tells, and promotion needs an explicit word."""
    real = LogEnd.append

    def refuses(line: LogEnd, commit: Commit, *rest: Any) -> Any:
        if (commit.agent, commit.seq) == ("ticket-43", 2):
            raise Corrupt("its bytes are damaged", target="agent 'ticket-43', commit 2", hint="")
        return real(line, commit, *rest)

    write(source, 1)
    monkeypatch.setattr(LogEnd, "append", refuses)
    result = type_in("replicate", source, target)
    assert result.exit_code == 5
    assert "set aside ticket-43 from commit 2 on: Corrupt" in " ".join(result.stderr.split())
    result = type_in("replicate", source, target, "--json")
    (aside,) = json.loads(result.stdout)["set_aside"]
    assert (aside["agent"], aside["from_seq"]) == ("ticket-43", 2)
    code, said = refused("promote", target)
    assert (code, said["target"]) == (4, "agent 'ticket-43'")
    assert "--take-incomplete" in said["hint"]
    code, said = refused("migrate", source, target + ".moved")
    assert (code, said["target"]) == (4, "agent 'ticket-43'")
    said = see_json("promote", target, "--take-incomplete", "--source-is-lost")
    assert [one["agent"] for one in said["incomplete"]] == ["ticket-43"]
    write(target, "on")
