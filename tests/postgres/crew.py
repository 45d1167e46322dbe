"""`python -m tests.postgres.crew work URL FOLDER …`: one of the processes of chaos, on a server.

Those that outlive what happens to the server, or to the network: workers, and who answers and
settles. What they do to the world is in the folder, which all of them share.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import perdure
from tests.chaos import agents
from tests.chaos.monkey import check
from tests.chaos.processes import Site, care, work_new
from tests.chaos.world import World

FINISH_S = 120.0


def cared_for(site: Site) -> None:
    """Somebody who asks again after each failure."""
    _again(site, "care", care)


def worked(site: Site) -> None:
    """A worker that is started anew if the server was away when it opened the store."""
    _again(site, "work", work_new)


def _again(site: Site, what: str, do: Callable[[Site], None]) -> None:
    while not site.finished.exists():
        try:
            do(site)
        except perdure.StoreUnavailable as error:
            site.note("told", f"{what}: {error}")
            time.sleep(0.1)


def checked(site: Site) -> None:
    """At the end: all that there is, from outside."""
    with site.open() as store:
        check(site, store)


PARTS: dict[str, Callable[[Site], None]] = {
    "work": worked,
    "care": cared_for,
    "check": checked,
}


class Crew:
    """The processes of one test, each with a copy of every kind of agent's work to do."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._processes: list[subprocess.Popen[bytes]] = []
        World(site.folder)

    def hire(self, part: str, *, url: str = "", before: Sequence[str] = ()) -> int:
        """Start a process; its place in the list. `before`: what its command stands behind."""
        site = self.site
        command = [
            *before,
            sys.executable,
            "-m",
            "tests.postgres.crew",
            part,
            url or site.url,
            str(site.folder),
            str(site.copies),
            str(site.rounds),
            str(site.lease_ttl_s),
        ]
        with open(site.folder / "errors", "ab") as errors:
            self._processes.append(subprocess.Popen(command, stderr=errors))
        return len(self._processes) - 1

    def kill(self, which: int) -> None:
        self._processes[which].kill()
        self._processes[which].wait()

    def alive(self, which: int) -> bool:
        return self._processes[which].poll() is None

    def said(self, words: str) -> int:
        """How often these words are in what the processes logged."""
        return (self.site.folder / "errors").read_text(errors="replace").count(words)

    def ready(self) -> int:
        """How many workers have come to look for runs."""
        path = self.site.folder / "ready"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def effects(self) -> int:
        """How much was done to the world until now."""
        world, folder = World(self.site.folder), self.site.folder / "world"
        return sum(len(world.effects(path.name)) for path in folder.iterdir())

    def await_effects(self, more: int) -> None:
        """Until so much more was done."""
        wanted = self.effects() + more
        self.wait(lambda: self.effects() >= wanted or self.site.finished.exists())

    def wait(self, what: Callable[[], bool]) -> None:
        until = time.monotonic() + FINISH_S
        while not what():
            self._look_for_trouble()
            assert time.monotonic() < until, "it does not come to its end: " + self._notes()
            time.sleep(0.02)

    def finish(self, *, before: Sequence[str] = ()) -> None:
        """Wait until all runs are done, and check everything."""
        self.wait(self.site.finished.exists)
        last = self.hire("check", before=before)
        assert self._processes[last].wait() == 0, self._notes()
        self._look_for_trouble()

    def _look_for_trouble(self) -> None:
        for name in ("odd", "attention"):
            path = self.site.folder / name
            assert not path.exists(), path.read_text()[-4000:]

    def _notes(self) -> str:
        files = [self.site.folder / name for name in ("odd", "attention", "told", "errors")]
        return "\n".join(path.read_text()[-3000:] for path in files if path.exists())

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


def main(part: str, url: str, folder: str, copies: str, rounds: str, ttl_s: str) -> None:
    site = Site(Path(folder), int(copies), int(rounds), "sync", float(ttl_s), url)
    agents.come(site.folder)
    agents.is_of_version("2")  # all of one program: each may be the last one there
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    try:
        PARTS[part](site)
    except BaseException:
        site.note("odd", f"{part}: {traceback.format_exc()}")
        raise


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
