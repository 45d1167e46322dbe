"""The command as a process of its own: what scripts and terminals get."""

import json
import os
import pty
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure.cli.failures import in_the_shell, name_of
from perdure.storage.postgres.faults import AwayError
from perdure.storage.standing import ClosedError, OvertakenError
from tests.cli.operator import Operator

COMMAND = [sys.executable, "-m", "perdure"]


def run(*words: str, store: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **more}
    env.pop("PERDURE_STORE", None)
    if store is not None:
        env["PERDURE_STORE"] = str(store)
    return subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, env=env, timeout=60, check=False
    )


def test_help_says_the_exit_codes_and_version(operator: Operator) -> None:
    shown = run("--help")
    assert shown.returncode == 0
    assert "3 not" in shown.stdout
    assert "PERDURE_STORE" in shown.stdout
    assert run("--version").stdout == f"perdure {perdure.__version__}\n"


def test_a_command_loads_itself_and_no_other(operator: Operator) -> None:
    """Each command loaded all of them, and Typer made the options of all: `perdure ls` in a loop
    took half a second of CPU each time."""
    code = (
        "import sys; from perdure.cli.app import app; "
        f"app(['ls', '--store', {str(operator.path)!r}], standalone_mode=False); "
        "print(sorted(name for name in sys.modules if name.startswith('perdure.cli.')))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert "perdure.cli.overview" in shown
    for other in ("steering", "timeline", "worker", "replicas", "transfer"):
        assert f"perdure.cli.{other}'" not in shown


@pytest.mark.parametrize("module", ["typer", "perdure.cli.steering", "perdure.cli.terminal"])
def test_ctrl_c_while_it_starts_is_no_traceback(module: str) -> None:
    code = f"""
import sys
class Interrupts:
    def find_spec(self, name, *more):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupts())
from perdure.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, "")


def test_the_store_from_the_environment_or_either_place(operator: Operator) -> None:
    path = str(operator.path)
    for found in (
        run("ls", store=operator.path),
        run("--store", path, "ls"),
        run("ls", "--store", path),
        run("ls", "--store", f"sqlite:///{path}", store=Path("none.db")),
    ):
        assert found.returncode == 0, found.stderr
        assert "ticket-42" in found.stdout
    nothing = run("ls")
    assert nothing.returncode == 2
    assert "PERDURE_STORE" in nothing.stderr
    assert run("ls", "--store", "ftp://x").returncode == 2


@pytest.mark.parametrize(
    ("words", "code", "kind"),
    [
        (["--json", "show", "nobody"], 3, "NotFound"),
        (["show", "nobody", "--json"], 3, "NotFound"),
        (["fork", "ticket-42", "what-if", "--json"], 4, "Conflict"),
        (["show", "--json"], 2, "Usage"),
        (["nonsense", "--json"], 2, "Usage"),
        (["verify", "ticket-42", "--anchor", "sha256:" + "0" * 64, "--json"], 5, "Corrupt"),
        (["verify", "ticket-42", "--anchor", "sha256:00", "--json"], 2, "Usage"),
        (["verify", "ticket-42", "--anchor", "", "--json"], 2, "Usage"),
    ],
)
def test_errors_for_scripts(operator: Operator, words: list[str], code: int, kind: str) -> None:
    found = run(*words, store=operator.path)
    assert found.returncode == code
    error = json.loads(found.stderr)
    assert error["error"] == kind
    assert error["exit_code"] == code
    if kind != "Corrupt":  # verify still says what it found of each agent
        assert found.stdout == ""


def test_errors_for_people_are_on_stderr(operator: Operator) -> None:
    found = run("show", "nobody", store=operator.path)
    assert found.returncode == 3
    assert found.stdout == ""
    assert found.stderr.startswith("error: agent 'nobody': there is no such agent\n")


def test_damage_is_found_with_its_own_exit_code(operator: Operator) -> None:
    data = bytearray(operator.path.read_bytes())
    at = data.index(b"what-if")
    data[at] ^= 1
    operator.path.write_bytes(bytes(data))
    found = run("verify", store=operator.path)
    assert found.returncode == 5
    assert "Traceback" not in found.stderr


def test_a_closed_pipe_is_no_error_message(operator: Operator) -> None:
    with perdure.open(operator.path, durability="os") as store:
        agent = store.agent("long")
        for number in range(300):
            with agent.edit("x" * 200) as draft:
                draft["n"] = number
    shell = f"{sys.executable} -m perdure log long --json | head -n 1"
    env = {**os.environ, "PERDURE_STORE": str(operator.path)}
    found = subprocess.run(
        ["/bin/sh", "-c", shell], capture_output=True, text=True, env=env, timeout=60, check=False
    )
    assert found.stdout == "[\n"
    assert found.stderr == ""


@perdure.agent(dict)
def job(run: perdure.Run[dict]) -> int:
    return 1


@pytest.fixture
def unread() -> Iterator[int]:
    """Somewhere to write to that nobody reads any more."""
    read, write = os.pipe()
    os.close(read)
    yield write
    os.close(write)


@pytest.mark.parametrize("words", ["ls", "ls --json", "runs", "verify ticket-43", "stats"])
def test_where_words_cannot_go(operator: Operator, unread: int, words: str) -> None:
    """A table whose reader had gone ended with 1, an unexpected error, and JSON with 141; on a full
    disk each asked to be reported."""
    command = [*COMMAND, "--store", str(operator.path), *words.split()]
    found = subprocess.run(command, stdout=unread, stderr=subprocess.PIPE, check=False)
    assert (found.returncode, found.stderr) == (141, b"")
    with open("/dev/full", "w") as full:
        found = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert found.returncode == 1
    assert b"cannot be written: No space left on device" in found.stderr
    assert b"unexpected" not in found.stderr


def test_output_that_cannot_be_written_is_no_wrong_command_line(
    operator: Operator, tmp_path: Path
) -> None:
    """A nightly backup ran out of disk in the middle of its file, and got the usage and exit code
    2, as for an option that does not exist; to stdout the same ended with 1, and not as JSON. Input
    that could not be read was called output that could not be written."""
    with perdure.open(operator.path) as store, store.agent("long").edit("x") as draft:
        draft["long"] = os.urandom(300_000)
    export = [*COMMAND, "--store", str(operator.path), "--json", "export"]

    def said(*words: str, agent: str = "long", full: bool = False) -> tuple[int, str]:
        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

        with open("/dev/full", "w") as nowhere:
            out = nowhere if full else subprocess.DEVNULL
            command = [*export, agent, *words]
            found = subprocess.run(
                command, stdout=out, stderr=subprocess.PIPE, preexec_fn=limit, check=False
            )
        error = json.loads(found.stderr)
        assert error["exit_code"] == found.returncode
        return found.returncode, error["problem"]

    file = tmp_path / "out.jsonl"
    assert said("-o", str(file)) == (1, f"cannot write {file}: File too large")
    assert said("-o", "/dev/full") == (1, "cannot write /dev/full: No space left on device")
    assert said(full=True) == (1, "the output cannot be written: No space left on device")
    assert not list(tmp_path.glob("out*"))
    for path in (tmp_path / "no" / "out", tmp_path / ("x" * 300), operator.path / "out"):
        assert said("-o", str(path))[0] == 2
    assert said("--force", "-o", str(tmp_path), agent="ticket-42")[0] == 2

    found = run("import", "/proc/self/mem", store=operator.path)
    assert (found.returncode, found.stderr) == (
        1,
        "error: cannot read /proc/self/mem: Input/output error\n",
    )


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_worker_goes_on_when_nobody_reads_what_it_says(
    tmp_path: Path, unread: int, stream: str
) -> None:
    """What took its lines was restarted, and the worker ended without a word at its next one. Then
    it went on, and each run whose function printed something failed for good."""
    (tmp_path / "jobs.py").write_text(
        f"""
import sys, perdure

@perdure.step
def draft(n):
    print("drafting", n, file=sys.{stream}, flush=True)
    return n

@perdure.agent(dict)
def job(run): return draft(1)
"""
    )
    path = tmp_path / "a.db"
    with perdure.open(path) as store:
        for number in range(3):
            store.start(job, f"a{number}")
        command = [*COMMAND, "worker", "jobs", "--store", str(path)]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: unread}
        with subprocess.Popen(command, cwd=tmp_path, **streams) as one:  # type: ignore[call-overload]
            while (ends := {run.status for run in store.runs()}) != {"done"}:
                assert one.poll() is None
                assert "failed" not in ends
                time.sleep(0.05)
            one.terminate()
            heard = one.stderr if stream == "stdout" else one.stdout
            assert (b"Broken pipe" if stream == "stdout" else b"done") in heard.read()
            assert one.wait() == 0


def test_ctrl_c_at_a_question_is_an_interruption(tmp_path: Path) -> None:
    """It ended with 1, "an unexpected error", as nothing else that is interrupted does."""
    path = tmp_path / "a.db"
    with perdure.open(path) as store:
        for number in range(2):
            store.start(job, f"a{number}")
    leader, follower = pty.openpty()
    code = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it would be ignored
from perdure.cli import main
main()
"""
    command = [sys.executable, "-c", code, "--store", str(path), "cancel", "--all"]
    try:
        with subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower) as one:
            shown = b""
            while b"[y/N]" not in shown:
                shown += os.read(leader, 1000)
            one.send_signal(signal.SIGINT)
            assert one.wait(60) == 130
    finally:
        os.close(leader)
        os.close(follower)
    with perdure.open(path) as store:
        assert {run.status for run in store.runs()} == {"pending"}


def test_no_colour_and_no_cut_lines_where_nobody_looks(operator: Operator) -> None:
    with perdure.open(operator.path) as store, store.agent("n" * 150).edit("w" * 30) as draft:
        draft["x"] = 1
    for words in (["ls"], ["log", "n" * 150], ["stats"], ["show", "ticket-43"]):
        shown = run(*words, store=operator.path, COLUMNS="80", TERM="xterm-256color").stdout
        assert "\x1b" not in shown
        assert "…" not in shown
    listed = run("ls", store=operator.path, COLUMNS="80").stdout
    assert any(line.startswith("n" * 150 + "  ") for line in listed.splitlines())


def test_colour_for_a_person(operator: Operator) -> None:
    leader, follower = pty.openpty()
    env = {**os.environ, "PERDURE_STORE": str(operator.path), "TERM": "xterm-256color"}
    env.pop("NO_COLOR", None)
    try:
        subprocess.run(
            [*COMMAND, "runs"],
            stdout=follower,
            stderr=follower,
            stdin=follower,
            env=env,
            timeout=60,
            check=True,
        )
        shown = os.read(leader, 100_000).decode()
    finally:
        os.close(leader)
        os.close(follower)
    assert "\x1b[" in shown
    assert "is in doubt" in shown


def test_export_and_import_through_a_pipe(operator: Operator) -> None:
    destination = operator.path.with_name("piped.db")
    perdure.open(destination).close()
    shell = f"{sys.executable} -m perdure export ticket-42 --store '{operator.path}' | "
    shell += f"{sys.executable} -m perdure import - --store '{destination}' --json"
    found = subprocess.run(
        ["/bin/sh", "-c", shell], capture_output=True, text=True, timeout=60, check=False
    )
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["agent"] == "ticket-42"


def test_values_that_this_locale_cannot_show(operator: Operator) -> None:
    with perdure.open(operator.path) as store, store.agent("ö").edit("ü €") as draft:
        draft["ä"] = "€ \ud800"
    for words in (["state", "ö"], ["log", "ö"], ["log", "ö", "--json"], ["ls"], ["show", "ö"]):
        for encoding in ("ascii", "utf-8"):
            found = run(*words, store=operator.path, PYTHONIOENCODING=encoding)
            assert found.returncode == 0, found.stderr


def terminal(*words: str, store: Path, columns: int = 80) -> str:
    """What a command shows on a terminal of so many columns."""
    leader, follower = pty.openpty()
    env = {**os.environ, "PERDURE_STORE": str(store), "NO_COLOR": "1", "COLUMNS": str(columns)}
    env["TERM"] = "dumb"
    try:
        subprocess.run(
            [*COMMAND, *words],
            stdout=follower,
            stderr=subprocess.DEVNULL,
            stdin=follower,
            env=env,
            timeout=60,
            check=True,
        )
        return os.read(leader, 100_000).decode().replace("\r\n", "\n")
    finally:
        os.close(leader)
        os.close(follower)


def test_a_tool_call_is_one_line_on_a_terminal(operator: Operator) -> None:
    """Story: calls with long arguments filled the screen, each folded over many lines."""

    @perdure.tool
    def post(text: str, more: str) -> str:
        return text

    @perdure.agent(dict, name="posting")
    def posting(run: perdure.Run[dict]) -> None:
        post("word " * 50, "more " * 50)

    with perdure.open(operator.path) as store:
        store.run(posting, "long")
    lines = terminal("effects", "long", store=operator.path).splitlines()
    assert len(lines) == 2, lines
    assert "…" in lines[1]
    assert len(terminal("effects", "long", "--whole", store=operator.path).splitlines()) > 2


def test_usage_is_said_like_other_errors() -> None:
    """Story: a wrong command line said "Error:" and "[[PREFIX]]", where all else says "error:"."""
    for words in (["show"], ["nonsense"], ["--nonsense"], ["ls", "-n", "x"], ["ls"]):
        found = run(*words)
        assert found.returncode == 2
        assert "\nerror: " in f"\n{found.stderr}"
        assert "Error:" not in found.stderr
    assert "Try 'perdure show --help'" in run("show").stderr
    assert "[PREFIX]" in run("ls", "--help").stdout
    for command in ("ls", "runs", "stats", "verify", "diff"):
        assert "[[" not in run(command, "--help").stdout
    assert "Commands:" in run().stdout + run().stderr


def test_no_hint_shows_the_password_of_a_url() -> None:
    """What is to be pasted into a shell once repeated the whole URL that was typed."""
    url = "postgresql://me:geheim@localhost:1/db?schema=s"
    said = in_the_shell("then `perdure verify a`", url, shown=True)
    assert "geheim" not in said and "postgresql://me@localhost:1/db?schema=s" in said


def test_an_empty_word_is_no_choice(operator: Operator) -> None:
    """Story: `-s "$UNSET"` took the store of the environment, and `--queue "$UNSET"` served a queue
    without a name, and picked up nothing, for ever."""
    for words, said in (
        (("-s", "", "ls"), "--store is empty"),
        (("worker", "tests.cli.operator:support", "--queue", ""), "--queue is empty"),
        (("signal", "ticket-42", "", "1"), "NAME is empty"),
    ):
        found = run(*words, store=operator.path)
        assert (found.returncode, found.stdout) == (2, "")
        assert said in found.stderr


def test_the_words_of_hints_are_no_values(operator: Operator) -> None:
    """Story: who pasted a hint, `--done JSON`, had the text "JSON" recorded as a tool's result."""
    found = run("settle", "ticket-42", "refund#1", "--done", "JSON", store=operator.path)
    assert found.returncode == 2
    assert "replace JSON by the value itself" in found.stderr


def test_a_command_of_a_hint_names_its_store_once(operator: Operator) -> None:
    for words in (("log", "nothing-like-it"), ("why", "nothing-like-it")):
        found = run("-s", str(operator.path), *words)
        (hint,) = [line for line in found.stderr.splitlines() if "→" in line]
        assert hint.count("--store") == 1, hint


def test_closed_streams(operator: Operator) -> None:
    """Story: `perdure ls >&-` ended with an unexpected AttributeError."""
    env = {**os.environ, "PERDURE_STORE": str(operator.path)}
    shell = f"{COMMAND[0]} -m perdure"
    for words, code in (
        ("ls >&-", 0),
        ("ls 2>&-", 0),
        ("ls <&-", 0),
        ("nothing >&- 2>&-", 2),
        ("cancel --all <&-", 2),
    ):
        found = subprocess.run(
            ["sh", "-c", f"{shell} {words}"],
            capture_output=True,
            text=True,
            env=env,
            timeout=60,
            check=False,
        )
        assert found.returncode == code, (words, found.stderr)
        assert "unexpected" not in found.stderr


def test_scripts_are_told_the_names_that_the_documents_have() -> None:
    """A script that looked for `StoreUnavailable` in the JSON of an error met the library's
    own names, which come and go: `AwayError`, `HeldError`."""
    assert name_of(AwayError("no answer")) == "StoreUnavailable"
    assert name_of(OvertakenError("another one ships")) == "Conflict"
    assert name_of(ClosedError("it follows", target="", hint="", url="")) == "ClosedError"
    assert name_of(ZeroDivisionError()) == "ZeroDivisionError"
