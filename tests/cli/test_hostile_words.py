"""Names and words of others reach the operator's terminal as words, and nothing else."""

import ast
import gc
import logging
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.system import logs, shell
from perdure.testing import run_until_waiting
from tests.cli.hostile import HOSTILE
from tests.cli.operator import Operator, crash
from tests.source_tree import ROOT, SOURCE

VIEWS = (
    ("ls",),
    ("show", "AGENT"),
    ("log", "AGENT"),
    ("log", "-p", "AGENT"),
    ("state", "AGENT"),
    ("diff", "AGENT", "1"),
    ("branches", "AGENT"),
    ("stats",),
    ("runs",),
    ("why", "AGENT"),
    ("run", "show", "AGENT"),
    ("effects", "AGENT"),
    ("verify", "--no-pages", "AGENT"),
    ("cancel", "AGENT"),
    ("undo", "AGENT"),
)


@pytest.fixture
def store(tmp_path: Path) -> Operator:
    path = tmp_path / "agents.db"
    with perdure.open(path) as opened:
        agent = opened.agent(HOSTILE)
        with agent.edit(HOSTILE, key=HOSTILE, tags=[HOSTILE]) as draft:
            draft.update(customer=HOSTILE, **{HOSTILE: HOSTILE})
        agent.checkpoint(HOSTILE + "point")
        agent.fork(HOSTILE + "branch")
        crash(opened, HOSTILE, key=HOSTILE)
    return Operator(path)


def typed(operator: Operator, words: tuple[str, ...], *options: str) -> list[str]:
    command, given = list(words[:1]), list(words[1:])
    if command == ["run"]:
        command, given = command + given[:1], given[1:]
    flags = [word for word in given if word.startswith("-")]
    named = [HOSTILE if word == "AGENT" else word for word in given if word not in flags]
    return ["--store", str(operator.path), *command, *options, *flags, "--", *named]


def run(words: list[str]) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "perdure", *words], capture_output=True, check=False
    )
    return done.returncode, (done.stdout + done.stderr).decode()


def assert_harmless(shown: str) -> None:
    assert all(c.isprintable() or c == "\n" for c in shown), repr(shown)


def test_what_an_agent_is_called_does_not_steer_the_terminal(store: Operator) -> None:
    """Story: an agent named itself with a sequence that sets the terminal's title; `runs`, `why`
    and `show` printed it raw. A name that began with - was taken for an option, and the command
    that a hint gave for it did not work."""
    for words in VIEWS[:-2]:
        code, shown = run(typed(store, words))
        assert code in (0, 3), (words, shown)
        assert_harmless(shown)
        assert "smile" in shown or words[0] in ("state", "stats", "diff", "effects"), shown


def test_json_and_errors_are_harmless_too(store: Operator) -> None:
    for words in [("show", "AGENT"), ("log", "AGENT"), ("runs",), ("state", "AGENT")]:
        code, shown = run(typed(store, words, "--json"))
        assert code == 0
        assert_harmless(shown)
    for given in (["show", "--", "none" + HOSTILE], ["show", HOSTILE], [HOSTILE]):
        code, shown = run(["--store", str(store.path), *given])
        assert code in (2, 3)
        assert_harmless(shown)


def test_a_hint_can_be_pasted(store: Operator) -> None:
    """Each command that `show` gives for the call in doubt is read by bash as it was meant."""
    _, shown = run(typed(store, ("show", "AGENT")))
    hints = [line.strip() for line in shown.splitlines() if line.strip().startswith("perdure ")]
    assert len(hints) >= 2
    not_done = next(hint for hint in hints if "--not-done" in hint).partition("   ")[0]
    ours = f'perdure() {{ {shell.quote(sys.executable)} -m perdure "$@"; }}; {not_done}'
    store_named = {"PERDURE_STORE": str(store.path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", "-c", ours], capture_output=True, env=store_named, check=False, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "was not done" in done.stdout


def test_a_word_is_quoted_whatever_it_holds() -> None:
    for word in (HOSTILE, "=ls", "a b", "", "!!", "it's", "\U0001f600", "-x", "é"):
        line = shell.join(["printf", "%s", word])
        assert_harmless(line)
        done = subprocess.run(["bash", "-c", line], capture_output=True, check=True)
        assert done.stdout.decode() == word
    assert shell.words("why", "-x", question="q") == ("why", "--question=q", "--", "-x")
    assert shell.words("run show", "x", all=True) == ("run", "show", "x", "--all")


def test_messages_of_errors_and_logs(caplog: pytest.LogCaptureFixture) -> None:
    error = perdure.NotFound(HOSTILE, target=HOSTILE, hint=HOSTILE)
    assert_harmless(str(error))
    with caplog.at_level(logging.WARNING):
        logs.logger("perdure.worker").warning("run %s: %s", HOSTILE, error)
    assert_harmless(caplog.records[-1].getMessage())


def printers(tree: ast.AST) -> list[str]:
    """What writes to the terminal by itself."""
    found: list[str] = []
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="print" | "Console" | "Text")):
                found.append(ast.unparse(node))
            case ast.Attribute(value=ast.Name(id="sys"), attr="stdout" | "stderr"):
                found.append(ast.unparse(node))
            case ast.Attribute(value=ast.Name(id="typer"), attr="echo" | "secho"):
                found.append(ast.unparse(node))
            case ast.Attribute(value=ast.Name(id="logging"), attr="getLogger"):
                found.append(ast.unparse(node))
    return found


def test_loggers_and_warnings_show_what_is_not_printable() -> None:
    """The logger of LangGraph's metadata was Python's own, and warnings had the names of steps and
    signals as they are."""
    theirs = {"logs.py", "serializer.py"}  # the room; and LangGraph's own logger
    for path in sorted((SOURCE / "perdure").rglob("*.py")):
        found = [one for one in printers(ast.parse(path.read_text("utf-8"))) if "getLogger" in one]
        assert not found or path.name in theirs, path

    @perdure.agent(dict)
    async def f(run: perdure.AsyncRun[Any]) -> None:
        run.wait_for("signal" + HOSTILE.replace("\n", ""), timeout=0)

    def go() -> None:
        with perdure.open("memory://") as store, suppress(perdure.PerdureError):
            run_until_waiting(store, f, "a")
        gc.collect()

    with pytest.warns(RuntimeWarning) as caught:
        go()
    for warning in caught:
        assert_harmless(str(warning.message))


def test_nothing_is_printed_but_in_one_room() -> None:
    known: dict[str, Any] = {"terminal.py": ..., "__init__.py": ["sys.stdout", "sys.stderr"]}
    for path in sorted((SOURCE / "perdure" / "cli").glob("*.py")):
        found = printers(ast.parse(path.read_text("utf-8")))
        expected = known.get(path.name, [])
        assert expected is ... or found == expected, (path, found)


OURS = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[[0-9]*[AK]|\x1b\[2K|\r")
"""What we ourselves send to a terminal: colours; a progress bar that is drawn anew."""

WITHIN = HOSTILE.partition("\n")[2].encode("unicode_escape").decode()[:6]
"""How the part of a name that follows its line feed begins, where it is shown."""


WIDE = "10000"
"""Columns: no line is folded, so that each begins where we begin it."""


def on_a_terminal(*words: str) -> str:
    """What a process of ours writes to a terminal that knows colours."""
    ours, its = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": WIDE, "NO_COLOR": ""}
    process = subprocess.Popen(
        [sys.executable, "-m", *words], stdin=its, stdout=its, stderr=its, env=environment, cwd=ROOT
    )
    os.close(its)
    os.write(ours, b"n\n" * 20)  # to whichever of them asks before it removes anything
    written = bytearray()
    try:
        while data := os.read(ours, 65_536):
            written += data
    except OSError:  # EIO: the other end is closed
        pass
    os.close(ours)
    shown = written.decode("utf-8", "replace")
    assert process.wait() == 0, shown[-2_000:]
    return shown


def test_no_name_steers_a_terminal_whatever_is_typed(tmp_path: Path) -> None:
    """All commands with all options, from the registry, on a store in which agents, functions,
    tools, steps, questions, signals, queues, keys, tags and values have hostile names: of all that
    come, some are typed here, on a terminal. No name ends its line, either: what followed in a hint
    looked like a hint of ours."""
    shown = on_a_terminal("tests.cli.hostile", str(tmp_path), "29")
    assert (tmp_path / "unexpected").read_text() == ""
    assert "\x1b[1m" in shown, "there are colours"
    words = OURS.sub("", shown)
    assert_harmless(words)
    assert len(words) > 5_000
    begun = [line for line in words.split("\n") if line.lstrip(" →│").startswith(WITHIN)]
    assert begun == []


OF_OTHERS = re.compile(
    r"(run|info|entry|message|one|runs\[0\]|row|child|order)\.(id|agent|place|branch|queue|key|waits)"
    r"|run|question|place"
)
"""What is called by others, where it is put into words of ours."""

ERRORS = re.compile(r"(.*\.)?[A-Z]\w*(Error|Conflict|Found|Attention|Corrupt|Doubt|Out|Failed)$")


def test_no_error_says_a_name_of_others_as_it_is() -> None:
    """Errors may have several lines, so a line feed in one stays one. Ids of runs were put into
    them as they are: what followed a line feed in an agent's name began a line of the operator's
    terminal, as if it was ours."""
    found = []
    for path in sorted((SOURCE / "perdure").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(func=func, args=[problem, *_]) if ERRORS.match(ast.unparse(func)):
                    found += [
                        f"{path.name}:{part.lineno} {ast.unparse(part.value)}"
                        for part in ast.walk(problem)
                        if isinstance(part, ast.FormattedValue)
                        and part.conversion == -1
                        and OF_OTHERS.fullmatch(ast.unparse(part.value))
                    ]
    assert found == []
