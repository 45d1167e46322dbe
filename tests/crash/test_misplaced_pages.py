"""Pages that the disk put where others belong: each is whole, by its checksum, but misplaced.

What is read then is right, or it is Corrupt; never another agent's, never "not found", and never
without an end.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.errors import Corrupt, NotAStore, UnsupportedFormat

PAGE = 4096
NAMES = ("one", "two", "three")
COMMITS = 12
DAMAGE = (Corrupt, NotAStore, UnsupportedFormat)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "a.db"
    with perdure.open(path) as store:
        for number in range(COMMITS):
            for name in NAMES:
                with store.agent(name).edit(key=f"key {number}") as draft:
                    draft[f"text {number}"] = random.Random(f"{name}{number}").randbytes(900)
        for name in NAMES:
            store.agent(name).fork("side", at=COMMITS // 2)
    return path.read_bytes()


def states(store: perdure.Store, name: str) -> list[Any]:
    agent = store.agent(name)
    assert agent.exists
    return [agent.at(seq).plain for seq in range(1, COMMITS + 1)]


@pytest.fixture(scope="module")
def truth(whole: bytes, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    path = tmp_path_factory.mktemp("truth") / "a.db"
    path.write_bytes(whole)
    with perdure.open(path) as store:
        return {name: states(store, name) for name in NAMES}


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("both", [True, False], ids=["swapped", "twice"])
def test_what_is_read_is_right_or_corrupt(
    whole: bytes, truth: dict[str, list[Any]], tmp_path: Path, seed: int, both: bool
) -> None:
    """`verify` of such a log went round for ever, an agent with 43 commits was "not found", and
    what unpacked a row raised a bare struct.error."""
    one, two = (PAGE * page for page in random.Random(seed).sample(range(1, len(whole) // PAGE), 2))
    damaged = bytearray(whole)
    damaged[one : one + PAGE] = whole[two : two + PAGE]
    if both:
        damaged[two : two + PAGE] = whole[one : one + PAGE]
    path = tmp_path / "a.db"
    path.write_bytes(damaged)
    found: list[Exception] = []
    try:
        with perdure.open(path) as store:
            for name in NAMES:
                try:
                    agent = store.agent(name)
                    for seq in range(1, COMMITS + 1):
                        assert agent.at(seq).plain == truth[name][seq - 1]
                    assert agent.verify().commits == COMMITS + 2  # and two of the fork
                except DAMAGE as error:
                    found.append(error)
            try:
                store.check_pages()
            except DAMAGE as error:
                found.append(error)
    except DAMAGE as error:
        found.append(error)
    for one_found in found:
        assert "no such" not in str(one_found)


def test_a_commit_that_a_branch_is_at_and_that_is_not_there_is_no_wrong_number(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.db"
    with perdure.open(path) as store:
        for number in range(3):
            store.agent("a").save({"n": number})
        writer: Any = store.runner.context.backend
        with writer._writer.lock:
            connection = writer._writer.connect()
        connection.execute("DELETE FROM commits WHERE id = (SELECT max(id) FROM commits)")
        connection.close()
    with perdure.open(path) as store:
        for call in (lambda: store.agent("a").state, lambda: store.agent("a").at(4)):
            with pytest.raises(Corrupt, match="branch or checkpoint is at commit 4"):
                call()
        assert store.agent("a").at(3).plain == {"n": 1}
        with pytest.raises(perdure.NotFound, match="no such commit"):
            store.agent("a").at(5)
