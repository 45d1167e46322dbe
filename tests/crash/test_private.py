"""Nobody but their owner can open what agents know: files are 0600 and folders 0700, whatever the
umask, from the moment they are there."""

from __future__ import annotations

import ast
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver

import perdure
from perdure import private
from perdure.storage.sqlite.backend import SqliteBackend
from perdure.storage.sqlite.failed_sync import doubt
from tests.cli import langgraph_graphs as graphs
from tests.cli.operator import Operator, fill
from tests.source_tree import ROOT, SOURCE

OTHERS = 0o077
MAKING = "open,openat,openat2,creat,mkdir,mkdirat,mknod,mknodat,bind,chmod,fchmod,fchmodat"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# -- what the system is asked for ------------------------------------------------------------------


def open_to_others(trace: str) -> Iterator[str]:
    """The calls of a trace after which somebody else may open something."""
    narrowed: set[tuple[str, str]] = set()
    for line in trace.splitlines():
        found = re.match(r"(\d+) +(\w+)\((.*)\) += (-?\d+)", line)
        if found is None:
            continue
        process, call, given, result = found.groups()
        if result == "-1":
            continue
        modes = [int(word, 8) for word in re.findall(r"\b0[0-7]{3,6}\b", given.split('"')[-1])]
        if call == "fchmod" and not modes[-1] & OTHERS:
            narrowed.add((process, given.partition(",")[0]))
        if call == "bind":
            if "AF_UNIX" in given and (process, given.partition(",")[0]) not in narrowed:
                yield line
        elif "open" in call and "O_CREAT" not in given:
            continue
        elif not modes or modes[-1] & OTHERS:
            yield line


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_no_file_is_ever_there_for_others(tmp_path: Path) -> None:
    """Story: whoever had an account on the machine could read what every agent knew: the umask was
    022, so the database, its log and its copies were for all to read. Sockets were closed to others
    a moment after they had been open to them."""
    folder, trace, theirs = tmp_path / "s", tmp_path / "trace", tmp_path / "theirs.sqlite"
    folder.mkdir(0o700)
    with SqliteSaver.from_conn_string(str(theirs)) as saver:
        graphs.fill(saver)
    graphs.settle(theirs)
    theirs.chmod(0o600)  # SQLite gives its mode to what is made beside it
    program = [sys.executable, "-m", "tests.crash.private_session", str(folder), "000", str(theirs)]
    done = subprocess.run(
        ["strace", "-f", "--seccomp-bpf", "-e", f"trace={MAKING}", "-o", str(trace), *program],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    if "ptrace" in done.stderr:
        pytest.skip(f"strace may not trace here: {done.stderr:.200}")
    assert done.stdout.split() == ["done"], done.stdout + done.stderr
    said = trace.read_text("utf-8", "replace")
    for call in ("agents.db-wal", "agents.db-shm", "in-doubt", ".part", ".sock", "mkdir("):
        assert call in said, f"the session makes no {call}"
    assert list(open_to_others(said)) == []
    for path in folder.rglob("*"):
        assert not mode(path) & OTHERS, path


def test_what_is_open_to_others_is_found() -> None:
    quiet = [
        'openat(AT_FDCWD, "/a", O_RDWR|O_CREAT|O_CLOEXEC, 0600) = 3',
        'mkdir("/b", 0700) = 0',
        'openat(AT_FDCWD, "/0666", O_RDONLY|O_CLOEXEC) = 3',
        'openat(1, "/a", O_CREAT, 0666) = -1',
        "fchmod(4, 0600) = 0",
        'bind(4, {sa_family=AF_UNIX, sun_path="s"}, 9) = 0',
    ]
    loud = [
        'openat(AT_FDCWD, "/a", O_WRONLY|O_CREAT, 0666) = 3',
        'mkdir("/b", 0777) = 0',
        'bind(5, {sa_family=AF_UNIX, sun_path="s"}, 9) = 0',
        'chmod("/a", 0644) = 0',
        'mknodat(AT_FDCWD, "/c", S_IFREG|0640) = 0',
    ]
    assert list(open_to_others("\n".join(f"7 {line}" for line in quiet))) == []
    assert len(list(open_to_others("\n".join(f"7 {line}" for line in loud)))) == len(loud)


# -- who may make files at all ---------------------------------------------------------------------

MAKERS = {
    "mkdir",
    "makedirs",
    "mknod",
    "mkfifo",
    "touch",
    "write_text",
    "write_bytes",
    "chmod",
    "fchmod",
    "umask",
    "copyfile",
    "copy2",
    "copytree",
}
TEMPORARY = {"mkstemp", "mkdtemp", "TemporaryDirectory", "NamedTemporaryFile", "TemporaryFile"}
"""These are private by themselves."""


def makers(tree: ast.AST) -> Iterator[str]:
    """The calls of a module that may make a file by themselves."""
    has_sockets = any(
        isinstance(node, ast.Import) and any(name.name == "socket" for name in node.names)
        for node in ast.walk(tree)
    )
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        shown = ast.unparse(node)
        match node.func:
            case ast.Attribute(value=ast.Name(id="os"), attr="open") if "O_CREAT" in shown:
                yield shown
            case ast.Name(id="open") if len(node.args) > 1 and "opener=" not in shown:
                wanted = node.args[1]
                if not isinstance(wanted, ast.Constant) or set(str(wanted.value)) & set("wxa+"):
                    yield shown
            case ast.Attribute(attr=name) if name in MAKERS:
                yield shown
            case ast.Attribute(value=value, attr="bind") if has_sockets:
                yield ast.unparse(value)


def test_files_are_made_in_one_room_only() -> None:
    known = {
        "perdure/cli/app.py": ["open(os.devnull, 'r' if name == 'stdin' else 'w')"],
        "perdure/cli/transfer.py": ["os.fchmod(stream.fileno(), mode)"],  # that of what it replaces
    }
    found = {
        str(path.relative_to(SOURCE)): list(makers(ast.parse(path.read_text("utf-8"))))
        for path in SOURCE.rglob("*.py")
        if path != Path(private.__file__)
    }
    assert {name: calls for name, calls in found.items() if calls} == known


def test_a_maker_of_files_is_found() -> None:
    for text in (
        "open(path, 'w')",
        "open(path, how)",
        "os.open(p, os.O_CREAT)",
        "folder.mkdir()",
        "os.makedirs(x)",
        "path.write_text('')",
        "import socket\nown.bind(x)",
        "open(p, 'r+b')",
    ):
        assert list(makers(ast.parse(text))), text
    for text in ("open(path)", "open(path, 'rb')", "open(p, 'w', opener=own)", "signature.bind(x)"):
        assert not list(makers(ast.parse(text))), text


# -- shared on purpose -----------------------------------------------------------------------------


def beside(path: Path) -> dict[str, int]:
    """The modes of what a store has beside it while it is at work."""
    backend = SqliteBackend(str(path))
    try:
        backend.listen("one", lambda run: None)
        backend._locks.hold("one")
        doubt(str(path))
        folder = Path(f"{path}-executors")
        ends = {end: Path(f"{path}{end}") for end in ("", "-wal", "-shm", "-in-doubt")}
        files = {**ends, "executors": folder, "lock": folder / "one", "sock": folder / "one.sock"}
        return {name: mode(file) for name, file in files.items()}
    finally:
        backend.close()


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o277, 0o777])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_a_store_is_for_its_owner(tmp_path: Path, umask: int) -> None:
    """One umask took bits of the owner's, too: an empty file was left that nobody could use."""
    assert set(beside(tmp_path / "store.db").values()) == {0o600, 0o700}


@pytest.mark.parametrize(("given", "folder"), [(0o660, 0o770), (0o640, 0o750), (0o666, 0o777)])
def test_a_store_that_is_shared_stays_shared(
    tmp_path: Path, umask: int, given: int, folder: int
) -> None:
    """Whoever made the file first, or gave it a mode, said who may use it: so with all that lies
    beside it, or the others could neither execute runs nor be told of any."""
    path = tmp_path / "store.db"
    path.touch()
    path.chmod(given)
    modes = beside(path)
    assert modes.pop("executors") == folder
    assert set(modes.values()) == {given}
    assert mode(path) == given


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away")
def test_what_root_makes_belongs_to_the_owner_of_the_store(tmp_path: Path) -> None:
    """Root looked for a moment, and from then on the service could not make its lock files."""
    path = tmp_path / "store.db"
    path.touch(0o600)
    os.chown(path, 12345, 23456)
    beside(path)
    backend = SqliteBackend(str(path))
    backend._locks.hold("one")
    folder = Path(f"{path}-executors")
    for made in (folder, folder / "one"):
        assert made.stat().st_uid == 12345, made
    backend.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root may be in no group and change to any")
def test_it_is_shared_with_the_group_of_the_store_only(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.touch()
    path.chmod(0o660)
    os.chown(path, 0, 23456)
    beside(path)
    found = Path(f"{path}-executors").stat()
    assert (found.st_gid, stat.S_IMODE(found.st_mode)) == (23456, 0o770)


def test_what_is_there_keeps_its_mode(tmp_path: Path) -> None:
    """A folder that an operator opened, an export that others read."""
    path = tmp_path / "store.db"
    folder = Path(f"{path}-executors")
    folder.mkdir()
    folder.chmod(0o755)
    assert beside(path)["executors"] == 0o755
    operator, out = Operator(path), tmp_path / "out"
    os.unlink(path)
    fill(path)
    operator.see("export", "ticket-42", "-o", str(out))
    assert mode(out) == 0o600
    out.chmod(0o644)
    operator.see("export", "ticket-42", "-o", str(out), "--force")
    assert mode(out) == 0o644


def test_a_link_is_not_opened_to_others(tmp_path: Path) -> None:
    """What lies where something is about to be shared may be another's trap."""
    secret, shared = tmp_path / "secret", tmp_path / "shared"
    for path, given in ((secret, 0o600), (shared, 0o666)):
        path.touch()
        path.chmod(given)
    (tmp_path / "link").symlink_to(secret)
    os.close(private.make_file(str(tmp_path / "link"), os.O_RDWR, like=str(shared)))
    private._share(str(tmp_path / "link"), str(shared))
    assert mode(secret) == 0o600


@pytest.mark.parametrize("number", [1, 38])
def test_where_files_cannot_be_made_by_mknod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(path: str, mode: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "mknod", refuse)
    (tmp_path / "linked.db").symlink_to(tmp_path / "store.db")
    for name in ("linked.db", "other.db"):
        with perdure.open(tmp_path / name) as store:
            store.agent("a").save({}, "begun")
    assert sorted(os.listdir(tmp_path)) == ["linked.db", "other.db", "store.db"]
    assert mode(tmp_path / "store.db") == mode(tmp_path / "other.db") == 0o600


def test_a_socket_is_private_without_its_folder(tmp_path: Path) -> None:
    like, file = tmp_path / "like", tmp_path / "sock"
    like.touch(0o600)
    before = os.umask(0)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
            private.bind(own, str(file), str(file), like=str(like))
            assert mode(file) == 0o600
    finally:
        os.umask(before)


def test_a_folder_that_cannot_be_made_is_an_error_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether there is a folder was asked where no question was answered: for ever deeper, until
    the stack was full."""
    private.make_folder(str(tmp_path / "a" / "b"))
    assert mode(tmp_path / "a") == mode(tmp_path / "a" / "b") == 0o700

    def refuse(*_: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(os, "mkdir", refuse)
    with pytest.raises(FileNotFoundError):
        private.make_folder(str(tmp_path / "c" / "d"))
