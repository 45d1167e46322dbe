"""Whether a store's files are still there is asked at every commit, and must not change them."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import Corrupt
from perdure.storage.sqlite import files
from perdure.storage.sqlite.backend import SqliteBackend
from perdure.storage.sqlite.faults import ReplacedError
from perdure.storage.sqlite.files import Files, choose_look, look, look_with_times
from perdure.testing.contract.backend import Pen

LOOKS = pytest.mark.parametrize("look", [look, look_with_times])


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "störe.db")


@LOOKS
def test_a_look_finds_the_identity_and_the_length(
    path: str, look: Callable[[bytes], files.Look]
) -> None:
    Path(path).write_bytes(b"12345")
    name = os.fsencode(path)
    identity, size = look(name)
    assert (identity, size) == look_with_times(name)
    assert (size, identity[-1]) == (5, os.stat(path).st_ino)
    Path(path).write_bytes(b"123456789")
    assert look(name) == (identity, 9)
    Path(path).rename(path + " moved")
    Path(path).write_bytes(b"")
    assert look(name)[0] != identity
    os.link(path + " moved", path + " linked")
    assert look(name + b" linked")[0] == identity


@LOOKS
def test_a_look_at_nothing_says_so(path: str, look: Callable[[bytes], files.Look]) -> None:
    with pytest.raises(FileNotFoundError, match="störe"):
        look(os.fsencode(path))
    Path(path).write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        look(os.fsencode(path) + b"/below")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing but os.stat can be had")
def test_a_commit_does_not_ask_for_the_times_of_its_files(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Since Linux 6.13 a file whose times somebody saw gets new ones at its next write: each commit
    asked by os.stat whether the WAL was still there, and so paid a sixth more at the next sync."""
    asked: list[str] = []
    stat = os.stat

    def spy(name: Any, *args: Any, **more: Any) -> os.stat_result:
        asked.append(os.fsdecode(name))
        return stat(name, *args, **more)

    backend = SqliteBackend(path)
    pen = Pen(backend)
    pen.write(value=0)
    monkeypatch.setattr(os, "stat", spy)
    for n in range(10):
        pen.write(value=n)
    assert [name for name in asked if name.startswith(path)] == []
    monkeypatch.setattr(files, "look", look_with_times)
    pen.write(value=10)
    assert asked.count(path + "-wal") == 1, "this test must see such a look"
    backend.close()


@pytest.mark.parametrize("why", [AttributeError("no statx"), OSError(38, "refused by a filter")])
def test_where_there_is_no_statx_a_look_asks_for_all(
    path: str, why: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: Any, **__: Any) -> None:
        raise why

    monkeypatch.setattr(ctypes, "PyDLL", missing)
    assert choose_look() is look_with_times
    monkeypatch.setattr(files, "look", look_with_times)
    backend = SqliteBackend(path)
    pen = Pen(backend)
    pen.write(value=1)
    os.unlink(path + "-wal")
    (outcome,) = backend.append([pen.make(value=2)[0]])
    assert isinstance(outcome, Corrupt)
    backend.close()


def test_a_file_in_the_place_of_another_is_found(path: str) -> None:
    backend = SqliteBackend(path)
    found = Files.of(path)
    found.check()
    for name in (path, path + "-wal"):
        os.rename(name, name + " kept")
        with pytest.raises(ReplacedError, match="was deleted"):
            found.check()
        Path(name).write_bytes(b"")
        with pytest.raises(ReplacedError, match="was replaced"):
            found.check()
        os.rename(name + " kept", name)
    found.check()
    backend.close()
