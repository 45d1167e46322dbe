"""Commands under a limit for the size of files (`ulimit -f`)."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

import perdure
from perdure.cli.app import app
from tests.cli.operator import Operator, fill

KIB = 1024


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("limits") / "agents.db"
    fill(path)
    with perdure.open(path) as store:
        agent = store.agent("wide")
        for number in range(40):
            agent.save({"text": f"{number} " + os.urandom(1_000).hex()}, "wider")
    return path.read_bytes()


@pytest.fixture
def operator(filled: bytes, tmp_path: Path) -> Operator:
    path = tmp_path / "agents.db"
    path.write_bytes(filled)
    return Operator(path)


@contextmanager
def limited(size: int) -> Iterator[None]:
    assert signal.getsignal(signal.SIGXFSZ) is signal.SIG_IGN, "Python ignores it: EFBIG comes"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "log wide --store {path}"),
        (0, "fork wide other --store {path}"),
        (8 * KIB, "checkpoint wide now --store {path}"),
        (32 * KIB, "repair --store {path}"),
        (32 * KIB, "replicate {path} {path}.copy"),
        (64 * KIB, "migrate {path} {path}.copy"),
    ],
)
def test_a_limit_for_files_is_no_failing_disk(operator: Operator, size: int, words: str) -> None:
    """SQLite says `disk I/O error` where a file may not grow, and so commands said that the disk
    may be failing, on a healthy one. With room the same command goes on."""
    line = [word.format(path=operator.path) for word in words.split()]
    with limited(size):
        done = CliRunner().invoke(app, line)
    said = done.stderr
    assert done.exit_code == 6, said
    assert "may not become larger" in said or "a limit is reached" in said
    assert "`ulimit -f`" in said and "an input/output error" not in said
    assert CliRunner().invoke(app, line).exit_code == 0
    operator.see("verify")
