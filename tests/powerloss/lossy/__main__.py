"""`python -m tests.powerloss.lossy FOLDER SHELF NAMES SEED`: the process behind one mounted folder.

It hears commands on its standard input, a line each, and ends with it:

    cut AFTER           freeze after so many more changes
    lose KEPT           the power is lost: this share of what was not synced is kept; the end

and says in lines of JSON what it came to.
"""

from __future__ import annotations

import json
import os
import random
import resource
import select
import sys
import time
from typing import cast

from tests.powerloss.lossy import kernel, mount
from tests.powerloss.lossy.disk import Disk, Names
from tests.powerloss.lossy.kernel import Call, Device, Request
from tests.powerloss.lossy.system import System


class Process:
    """See the module."""

    def __init__(self, device: Device, disk: Disk, dice: random.Random) -> None:
        self._device = device
        self._disk = disk
        self._dice = dice
        self._system = System(disk)
        self._left: int | None = None
        self._frozen = False
        self._changes = 0
        self._syncs = 0

    def run(self) -> None:
        """Until the power is lost, or nobody commands any more."""
        poll = select.poll()
        poll.register(self._device.descriptor, select.POLLIN)
        with open(0, "rb", buffering=0, closefd=False) as commands:  # none is read before its turn
            poll.register(commands, select.POLLIN)
            while True:
                ready = [descriptor for descriptor, _ in poll.poll()]
                if commands.fileno() in ready and not self._obey(commands.readline().decode()):
                    return
                if self._device.descriptor in ready and not self._frozen:
                    request = self._device.receive()
                    if request is not None:
                        self._serve(request)
                    if self._frozen:
                        poll.unregister(self._device.descriptor)

    def _obey(self, line: str) -> bool:
        """Whether it goes on."""
        command, _, value = line.strip().partition(" ")
        if command == "cut":
            self._left = int(value)
            say(left=self._left)
        elif command == "lose":
            self._lose(float(value))
        return command == "cut"

    def _serve(self, request: Request) -> None:
        if request.call in kernel.CHANGES and self._left is not None:
            self._left -= 1
            if self._left < 0:
                if self._dice.random() < 0.5:  # done, and nobody hears of it
                    self._do(request)
                self._freeze()
                return
        body, error = self._do(request)
        if request.call not in kernel.UNANSWERED:
            self._device.answer(request, body, error)

    def _do(self, request: Request) -> tuple[bytes, int]:
        self._changes += request.call in kernel.CHANGES
        self._syncs += request.call in (Call.FSYNC, Call.FSYNCDIR)
        try:
            return self._system.do(request), 0
        except OSError as error:
            if error.errno is None:
                raise
            return b"", error.errno

    def _freeze(self) -> None:
        """Nothing more comes to the disk."""
        self._frozen = True
        say(frozen_ns=time.monotonic_ns())

    def _lose(self, kept: float) -> None:
        lost = self._disk.lose_power(kept)
        say(
            files=lost.files,
            pages=lost.pages,
            names=lost.names,
            changes=self._changes,
            syncs=self._syncs,
        )


def say(**words: object) -> None:
    print(json.dumps(words), flush=True)


def main(folder: str, shelf: str, names: str, seed: str) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    root, beside = (os.open(path, os.O_RDONLY | os.O_DIRECTORY) for path in (folder, shelf))
    dice = random.Random(seed)
    try:
        mount.leave()
        device = Device()
        mount.mount(device.descriptor, folder)
    except OSError as error:
        say(refused=str(error))
        return
    say(mounted=folder)
    Process(device, Disk(root, beside, cast(Names, names), dice), dice).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
