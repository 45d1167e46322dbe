"""Notices between processes: a Unix datagram socket for each executor that listens.

It lies beside the executor's lock file. Nothing depends on a notice: a lost one costs the time
until the next poll, so errors here are only logged.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from perdure.errors import StoreUnavailable
from perdure.private import bind, make_folder
from perdure.storage.listeners import call
from perdure.storage.sqlite.executors import SOCKET as SUFFIX
from perdure.system import logs
from perdure.system.locks import Lock
from perdure.system.threads import begin

HEAD = b"perdure run "
"""Before the run's id, so that what strangers send is told apart."""

DATAGRAM_MAX = 65_536
PATH_MAX = 107
"""Bytes in the name of a Unix socket, on Linux; a few less elsewhere (see unix(7))."""

_log = logs.logger("perdure.sqlite")


class Sockets:
    """The sockets of one store, in ``<store>-executors/``."""

    def __init__(self, store_path: str, is_dead: Callable[[str], bool]) -> None:
        self._store = store_path
        self._folder = store_path + "-executors"
        self._is_dead = is_dead
        self._ears: dict[str, _Ear] = {}
        self._lock = Lock()

    def listen(self, executor: str, callback: Callable[[str], None]) -> Callable[[], None]:
        """See `Backend.listen`. If it fails, nobody listens: polling serves."""
        with self._lock:
            before = self._ears.get(executor)
            if before is not None:
                before.end()  # and kept until another one takes its place
            try:
                make_folder(self._folder, like=self._store)
                ear = _Ear(self._open(executor), callback)
                self._ears[executor] = ear  # first: an interrupt where it begins must not forget it
                ear.begin()
            except (OSError, RuntimeError, StoreUnavailable) as error:  # too many threads, e.g.
                self._ears.pop(executor, None)
                _log.info("%s: cannot listen for notices: %s", self._store, error)
                return lambda: None
        return lambda: self._end(executor, ear)

    def _open(self, executor: str) -> socket.socket:
        own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            own.setblocking(False)
            file = os.path.join(self._folder, executor + SUFFIX)
            with suppress(FileNotFoundError):
                os.unlink(file)
            with self._names() as path:
                # Whoever may write to the store may notify.
                bind(own, file, path(executor + SUFFIX), like=self._store)
        except BaseException:
            own.close()
            raise
        return own

    @contextmanager
    def _names(self) -> Iterator[Callable[[str], str]]:
        """Gives a function that returns a short enough path for a socket's file name, if
        possible."""
        longest = PATH_MAX - len(os.fsencode(self._folder)) - 1
        if sys.platform != "linux":
            yield lambda name: os.path.join(self._folder, name)
            return
        folder = -1

        def path(name: str) -> str:
            nonlocal folder
            if len(os.fsencode(name)) <= longest:
                return os.path.join(self._folder, name)
            if folder < 0:
                folder = os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            return f"/proc/self/fd/{folder}/{name}"

        try:
            yield path
        finally:
            if folder >= 0:
                os.close(folder)

    def notify(self, run_id: str, besides: str = "") -> None:
        """See `Backend.notify`."""
        own = besides + SUFFIX
        try:
            there = os.listdir(self._folder)
            names = [name for name in there if name.endswith(SUFFIX) and name != own]
            notice = HEAD + run_id.encode()
        except (OSError, UnicodeEncodeError):
            return
        if not names:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, self._names() as path:
                sender.setblocking(False)
                for name in names:
                    self._send(sender, notice, name, path)
        except OSError as error:
            _log.info("%s: cannot notify: %s", self._store, error)

    def _send(
        self, sender: socket.socket, notice: bytes, name: str, path: Callable[[str], str]
    ) -> None:
        try:
            sender.sendto(notice, path(name))
        except ConnectionRefusedError:
            self._remove_if_dead(name)
        except OSError:
            pass  # full, just removed, not ours to write to, or too long: polling serves

    def _remove_if_dead(self, name: str) -> None:
        """Removes a socket that no process has. A living executor is about to open its socket
        again."""
        executor = name.removesuffix(SUFFIX)
        lock = os.path.join(self._folder, executor)
        if executor not in self._ears and (self._is_dead(executor) or not os.path.exists(lock)):
            with suppress(OSError):
                os.unlink(os.path.join(self._folder, name))

    def tidy(self) -> None:
        """Removes the sockets of the dead: one that accepts a message has a process."""
        self.notify("")

    def _end(self, executor: str, ear: _Ear) -> None:
        with self._lock:
            if self._ears.get(executor) is not ear:
                return  # ended before, replaced, or another process's: we are a forked child
            ear.end()
            with suppress(OSError):
                os.unlink(os.path.join(self._folder, executor + SUFFIX))
            del self._ears[executor]  # last: who is interrupted calls again

    def close(self) -> None:
        for executor, ear in list(self._ears.items()):
            self._end(executor, ear)

    def forget_after_fork(self) -> None:
        """Resets itself in a forked child: the parent's sockets are the parent's. Kept open here,
        they would seem to have a process after its end."""
        for ear in self._ears.values():
            ear.forget()
        self._ears.clear()
        self._lock = Lock()


class _Ear:
    """One socket with the thread that reads it, until `end`."""

    def __init__(self, own: socket.socket, callback: Callable[[str], None]) -> None:
        self._socket = own
        self._callback = callback
        self._ended = False
        self._wake, self._waker = socket.socketpair()

    def begin(self) -> None:
        begin(threading.Thread(target=self._serve, name="perdure-listener", daemon=True))

    def end(self) -> None:
        """Ends it. The thread closes its sockets itself: nobody else knows when it no longer uses
        them."""
        self._ended = True
        with suppress(OSError):
            self._waker.close()

    def forget(self) -> None:
        """Drops it in a forked child, where the thread is not."""
        self._ended = True
        for one in (self._socket, self._wake, self._waker):
            one.close()

    def _serve(self) -> None:
        with self._socket, self._wake:
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            poll.register(self._wake, select.POLLIN)
            while not self._ended:
                poll.poll()
                for run_id in self._heard():
                    if not self._ended:
                        call(self._callback, run_id)

    def _heard(self) -> dict[str, None]:
        """Returns all runs that were notified, each once: the socket is emptied first, so that new
        notices find room."""
        runs: dict[str, None] = {}
        while True:
            try:
                notice = self._socket.recv(DATAGRAM_MAX)
            except OSError:  # empty; a broken one is found by nobody sending to it
                return runs
            if notice.startswith(HEAD):
                run_id = notice.removeprefix(HEAD).decode("utf-8", "replace")
                if run_id:
                    runs[run_id] = None
