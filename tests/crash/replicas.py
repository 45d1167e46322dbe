"""Processes that write to a store, follow it, and move it: to be killed at any moment.

    python -m tests.crash.replicas write FILE URL NAME…
    python -m tests.crash.replicas follow FILE SRC DST
    python -m tests.crash.replicas migrate FILE SRC DST

Each adds a line to FILE for what it knows to be done.
"""

from __future__ import annotations

import os
import sys
import threading
import time

import perdure
from perdure.model import id_text
from perdure.replication import ClosedError, follow, following, migrate


def main() -> None:
    mode, file, *rest = sys.argv[1:]
    noted = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(line: object) -> None:
        os.write(noted, f"{line}\n".encode())

    if mode == "write":
        write(rest[0], rest[1:], note)
    elif mode == "follow":
        with following(rest[0], rest[1]) as follower:
            note("begun")
            follow(follower, threading.Event(), note)
    else:
        note("begun")
        migrate(rest[0], rest[1], on_moved=note, on_step=note)
        note("through")


def write(url: str, names: list[str], note: object) -> None:
    """Count in each agent in turn; go after those that move."""
    assert callable(note)
    stores = {url: perdure.open(url)}
    places = dict.fromkeys(names, url)
    while True:
        for name in names:
            place = places[name]
            if place not in stores:
                stores[place] = perdure.open(place)
            agent = stores[place].agent(name)
            n = agent.state.get("n", 0)
            try:
                with agent.edit("count", key=f"{n}") as draft:
                    draft["n"] = n + 1
                commit = next(iter(agent.log(newest_first=True)))
                note(f"{name} {commit.seq} {id_text(commit.id)}")
            except ClosedError as error:
                if "was moved to" in str(error):
                    places[name] = error.url
                time.sleep(0.005)  # until it has arrived
            except perdure.Conflict:
                continue  # the state was read at the new place before the last of it came


if __name__ == "__main__":
    main()
