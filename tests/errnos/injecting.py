"""One system call of a process fails (`strace -e inject`): which there are, what it leads to."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

import perdure
from perdure.errors import PerdureError
from tests.errnos.said import Said
from tests.errnos.workloads import Workload, check, urls

ERRORS = (
    "EIO",
    "ENOSPC",
    "EDQUOT",
    "EFBIG",
    "EROFS",
    "EACCES",
    "EPERM",
    "EMFILE",
    "ENFILE",
    "ENOMEM",
    "EINTR",
    "EAGAIN",
    "ESTALE",
    "ENODEV",
    "ENOTCONN",
    "EBADF",
)

THREADS = ("clone", "clone3")
"""Fail with EAGAIN only, as they do where there are too many threads."""

NOT_OURS = frozenset(
    (
        # Memory of the process, and what never fails or has nothing to do with files.
        "brk",
        "munmap",
        "mprotect",
        "mremap",
        "madvise",
        "futex",
        "exit",
        "exit_group",
        "rt_sigaction",
        "rt_sigprocmask",
        "rt_sigreturn",
        "sigaltstack",
        "restart_syscall",
        "sched_yield",
        "getpid",
        "gettid",
        "getppid",
        "set_robust_list",
        "rseq",
        "getrandom",
        "clock_nanosleep",
        "nanosleep",
        "prlimit64",
        "sched_getaffinity",
        "uname",
        "geteuid",
        "getuid",
        "kill",
        "tgkill",
        # The event loop's own.
        "epoll_wait",
        "epoll_ctl",
        "epoll_create1",
        "poll",
        "select",
        "pselect6",
        "socketpair",
    )
)

BOUND_S = 200.0
"""SQLite waits 10 seconds for a lock, several times where none can be had."""
_CALL = re.compile(r"^(\d+) +(\w+)\((.*)")
_FORBIDDEN = ("Corrupt", "NotAStore", "UnsupportedFormat", "InDoubt", "NeedsAttention")
"""An error of the system is none of these."""


class Fault(Struct, frozen=True):
    """The `nth` call of that name in each thread fails, `for_good` those after it, too."""

    call: str
    nth: int
    error: str
    for_good: bool = False

    def __str__(self) -> str:
        return f"{self.call}:error={self.error}:when={self.nth}{'+' if self.for_good else ''}"


class Injector:
    """Runs a workload in forks of this process, which has all modules loaded."""

    def __init__(
        self, workload: Workload, folder: Path, new_url: Callable[[], str] | None = None
    ) -> None:
        """`new_url`: of a store that is no file, and not there yet."""
        self._workload = workload
        self._folder = folder
        self._new_url = new_url
        self._said = Said()
        self._base = folder / "base"
        self._base.mkdir()
        if new_url is None:
            workload.begin(self._base)
        warm = self._here()
        workload.work(warm, self._said)  # loads what is loaded when it is needed
        check(warm, self._said.all())

    def calls(self) -> Counter[tuple[str, int]]:
        """The calls that it makes: by name and number, in how many threads."""
        here = self._here()
        heard, trace = self._run(here, None)
        assert heard[-1] == ("ended", None), heard
        counts: Counter[tuple[str, str]] = Counter()
        found: Counter[tuple[str, int]] = Counter()
        for line in trace.splitlines():
            matched = _CALL.match(line)
            if matched is None:
                continue
            thread, name, rest = matched.groups()
            counts[thread, name] += 1
            anonymous = name == "mmap" and ", -1, 0" in rest
            waits = name == "read" and counts[thread, name] == 1  # for us
            ours = name not in NOT_OURS or (name == "poll" and self._new_url is not None)
            skipped = not ours or name in self._workload.skips
            if not (skipped or anonymous or waits):
                found[name, counts[thread, name]] += 1
        return found

    def faults(self, calls: Counter[tuple[str, int]]) -> Iterator[Fault]:
        for name, nth in sorted(calls):
            for error in ("EAGAIN",) if name in THREADS else ERRORS:
                yield Fault(name, nth, error)
                for_good = error != "EINTR"  # no signal comes at every call
                if name == "fcntl":  # SQLite waits for a lock, minutes in all
                    for_good = error == "EIO" and nth % 16 == 0
                if name not in THREADS and for_good:
                    yield Fault(name, nth, error, for_good=True)

    def violation(self, fault: Fault) -> str:
        """What is wrong afterwards; empty: nothing."""
        here = self._here()
        try:
            heard, _ = self._run(here, fault)
            end, detail = heard[-1] if heard else ("died", None)
            if end not in ("ended", "error"):
                return f"{end}: {detail}"
            strange = [str(detail) for what, detail in heard if what == "strange"]
            if strange:
                return strange[0]
            try:
                check(here, heard)
            except Exception:
                return "afterwards: " + traceback.format_exc(limit=-4)
            return ""
        finally:
            shutil.rmtree(here, ignore_errors=True)

    def _here(self) -> Path:
        here = self._folder / "here"
        shutil.rmtree(here, ignore_errors=True)
        shutil.copytree(self._base, here)
        if self._new_url is not None:
            urls[here] = self._new_url()
            self._workload.begin(here)
        return here

    def _run(self, here: Path, fault: Fault | None) -> tuple[list[tuple[str, Any]], str]:
        self._said.clear()
        waits, go = os.pipe()
        hears, ready = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(go)
                os.write(ready, b"x")  # calls before this are not the workload's: none may fail
                os.read(waits, 1)
                _work(self._workload, here, self._said)
            finally:
                os._exit(1)
        os.close(waits)
        os.close(ready)
        os.read(hears, 1)
        os.close(hears)
        trace = self._folder / "trace"
        inject = ["-e", f"inject={fault}"] if fault is not None else []
        tracer = subprocess.Popen(
            ["strace", "-f", "-o", str(trace), *inject, "-p", str(child)],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert tracer.stderr is not None
        try:
            first = tracer.stderr.readline()
            if "attached" not in first:
                os.kill(child, signal.SIGKILL)
                raise OSError(errno.EPERM, f"strace: {first}")
            os.write(go, b"x")
            ended = _ended_in_time(child)
            tracer.wait(BOUND_S)
        finally:
            os.close(go)
            tracer.stderr.close()
        heard = self._said.all()
        if not ended:
            heard.append(("hung", heard[-3:]))
        elif heard and heard[-1][0] not in ("ended", "error"):
            heard.append(("died", heard[-3:]))
        return heard, trace.read_text(errors="replace")


def _ended_in_time(child: int) -> bool:
    until = time.monotonic() + BOUND_S
    while time.monotonic() < until:
        if os.waitpid(child, os.WNOHANG) != (0, 0):
            return True
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def _work(workload: Workload, here: Path, said: Said) -> None:
    """In the child; never returns."""

    def unhandled(what: Any) -> None:
        error = what.exc_value
        if not isinstance(error, MemoryError):
            said.say("strange", f"nobody caught {_described(error)}")

    threading.excepthook = sys.unraisablehook = unhandled
    try:
        workload.work(here, said)
    except PerdureError as error:
        if type(error).__name__ in _FORBIDDEN:
            said.say("strange", _described(error))
        elif not is_documented(error):
            said.say("strange", f"no documented name: {_described(error)}")
        said.say("error", type(error).__name__)
    except BaseException as error:
        said.say("strange", _described(error))
        said.say("error", type(error).__name__)
    else:
        said.say("ended")
    finally:
        os._exit(0)


def is_documented(error: BaseException) -> bool:
    """Whether docs/errors.md has it, by its own name or that of what it is a kind of."""
    names = {kind.__name__ for kind in type(error).__mro__} & set(perdure.__all__)
    return bool(names - {"PerdureError"})


def _described(error: BaseException) -> str:
    return "".join(traceback.format_exception(error, limit=-8))
