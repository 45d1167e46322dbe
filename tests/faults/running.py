"""Goes through a scene, one injection after the other, on one open store."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import perdure
from perdure.store import Store
from tests.faults.checking import check_usable
from tests.faults.injecting import KINDS, Helper, count, inject
from tests.faults.scenes import SCENES

_numbers = itertools.count(1)


class Finding(Exception):
    """An injection behind which something does not hold."""


class Runner:
    """A store that is made anew after a finding, and who helps to look."""

    def __init__(self, urls: Callable[[], str]) -> None:
        self._urls = urls
        self.helper = Helper()
        self.store: Store = perdure.open(self._urls())

    def anew(self) -> None:
        self.helper = Helper()
        self.store = perdure.open(self._urls())

    def points(self, scene: str) -> int:
        """How many instructions there are to raise at."""
        points = 0
        for _ in range(2):  # the first one fills caches
            _, call = SCENES[scene](self.store, f"{scene}-{next(_numbers)}")
            points = count(call)
        return points

    def inject(self, scene: str, at: int, kind: int) -> str:
        """One injection; gives where it was.

        Raises:
            Finding: what does not hold behind it.
        """
        agent, call = SCENES[scene](self.store, f"{scene}-{next(_numbers)}")
        where = "?"
        try:
            where = inject(call, at, KINDS[kind]).where
            check_usable(self.store, agent, self.helper)
        except BaseException as error:
            words = f"{scene} at {at}, kind {kind}, {where}: {type(error).__name__}: {error}"
            raise Finding(words) from error
        return where


@contextmanager
def runner(urls: Callable[[], str]) -> Iterator[Runner]:
    made = Runner(urls)
    try:
        yield made
    finally:
        Helper().call(made.store.close, 60.0)
