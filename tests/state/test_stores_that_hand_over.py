"""Stores that hand their agents to each other by chance: each agent takes writes in one of them,
and has all that was acknowledged there; also where a command is ended, and called again.

The story: a store was moved, followed its successor, and was promoted again. Its agents were closed
for good, in both stores, and each named the other.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.errors import PerdureError
from perdure.replication import DoneBeforeError, following, migrate, promote
from perdure.storage.locate import _named_memories
from perdure.storage.memory.backend import MemoryBackend
from perdure.storage.sqlite.backend import SqliteBackend

_fleets = itertools.count()
NAMES = ("a", "b", "c")
COMMANDS = ("replicate", "replicate", "resync", "promote", "promote", "migrate", "delete", "lose")


class EndedError(BaseException):
    """As a kill."""


class Fleet:
    """Three stores, one of which has agents in the beginning."""

    def __init__(self, seed: int, urls: list[str]) -> None:
        self.rng, self.urls = random.Random(f"fleet {seed}"), urls
        self.stores = {url: perdure.open(url, durability="os") for url in urls}
        self.acknowledged: dict[str, list[bytes]] = {}
        self.said = [f"seed {seed}"]
        for name in NAMES[:2]:
            self._write(urls[0], name)

    def close(self) -> None:
        for store in self.stores.values():
            store.close()
        for url in self.urls:
            _named_memories.pop(url.removeprefix("memory://"), None)

    def step(self) -> None:
        one, other = self.rng.sample(self.urls, 2)
        what = self.rng.choice(COMMANDS)
        self.said.append(f"{what} {one} {other}")
        command: Callable[[], object] = {
            "replicate": lambda: self._replicate(one, other, resync=False),
            "resync": lambda: self._replicate(one, other, resync=True),
            "promote": lambda: promote(one),
            "migrate": lambda: migrate(one, other),
            "delete": lambda: self._delete(one),
            "lose": lambda: self._lose(one, other),
        }[what]
        try:
            with ended(self.rng.randrange(1, 30)) if self.rng.random() < 0.3 else whole():
                command()
        except EndedError:
            self.said[-1] += ": ended, and again"
            assert all(len(self._writers(name)) <= 1 for name in [*self.acknowledged])
            self._try(command)
        except PerdureError as error:
            self._refused(error)
        name = self.rng.choice([*self.acknowledged])
        assert len(self._writers(name)) == 1, name

    def _try(self, command: Callable[[], object]) -> None:
        try:
            command()
        except PerdureError as error:
            self._refused(error)

    def _refused(self, error: PerdureError) -> None:
        self.said[-1] += f": {type(error).__name__} {error.problem}"

    def _replicate(self, source: str, target: str, *, resync: bool) -> None:
        with following(source, target, resync=resync) as follower:
            follower.drain()
            assert follower.lag().commits == 0

    def _delete(self, url: str) -> None:
        name = self.rng.choice(NAMES)
        if len(self.acknowledged) > 1:
            self.stores[url].delete(name)
            del self.acknowledged[name]

    def _lose(self, source: str, target: str) -> None:
        """The primary is gone, once its follower has all of it, and so is the third store; there
        are empty ones in their places."""
        if self._writers(next(iter(self.acknowledged))) != [source]:
            return
        self._replicate(source, target, resync=False)
        for url in self.urls:
            if url != target:
                self._make_anew(url)
        self.said[-1] += ": lost"
        try:
            promote(target, source_is_lost=True)
        except EndedError:
            with suppress(DoneBeforeError):
                promote(target, source_is_lost=True)

    def _make_anew(self, url: str) -> None:
        self.stores[url].close()
        if _named_memories.pop(url.removeprefix("memory://"), None) is None:
            for file in Path(url).parent.glob(f"{Path(url).name}*"):
                file.unlink()
        self.stores[url] = perdure.open(url, durability="os")

    def _writers(self, name: str) -> list[str]:
        """Writes to an agent wherever that can be done; returns where it could."""
        there = [url for url in self.urls if self.stores[url].find(name) is not None]
        return [url for url in there if self._write(url, name)]

    def _write(self, url: str, name: str) -> bool:
        agent = self.stores[url].agent(name)
        try:
            with agent.edit("written") as draft:
                draft["n"] = draft.get("n", 0) + 1
        except PerdureError:
            return False
        log = [commit.id for commit in agent.log()]
        assert set(self.acknowledged.get(name, ())) <= {*log}, f"{name} at {url} lacks commits"
        self.acknowledged[name] = log
        return True


@contextmanager
def whole() -> Iterator[None]:
    yield


@contextmanager
def ended(number: int) -> Iterator[None]:
    """A kill at one of the calls that change a store; before it, or behind."""
    left = number
    with pytest.MonkeyPatch.context() as patch:

        def one_less() -> int:
            nonlocal left
            left -= 1
            return left

        for backend, name in itertools.product((MemoryBackend, SqliteBackend), ("ship", "stand")):
            patch.setattr(backend, name, _ending(getattr(backend, name), one_less))
        yield


def _ending(call: Callable[..., Any], one_less: Callable[[], int]) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        if one_less() == 0:
            raise EndedError
        result = call(*args, **kwargs)
        if one_less() == 0:
            raise EndedError
        return result

    return called


def run_seed(seed: int, urls: list[str], steps: int = 25) -> None:
    fleet = Fleet(seed, urls)
    try:
        for _ in range(steps):
            fleet.step()
    except BaseException as error:
        error.add_note("\n".join(fleet.said))
        raise
    finally:
        fleet.close()


def memories() -> list[str]:
    number = next(_fleets)
    return [f"memory://fleet-{number}-{which}" for which in range(3)]


@pytest.mark.parametrize("seed", range(40))
def test_each_agent_takes_writes_in_one_of_them(seed: int) -> None:
    run_seed(seed, memories())


@pytest.mark.parametrize("seed", range(4))
def test_so_it_is_with_files(seed: int, tmp_path: Path) -> None:
    run_seed(seed, [str(tmp_path / f"{which}.db") for which in range(3)])


if __name__ == "__main__":
    import sys

    for seed in range(*map(int, sys.argv[1:3])):
        run_seed(seed, memories())
