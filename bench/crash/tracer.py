"""Kills a process in place of its k-th write; on Linux, by ptrace(2).

From `attach` on, each system call of all threads of a child process that changes something outside
of its memory is counted, and in place of the k-th one the process is killed as `kill -9` does: that
call, and what would have come after it, do not happen. Writes to pipes, terminals and event
counters are not counted.

`strace -e inject` cannot do this: it counts the calls of each thread by itself.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
from pathlib import Path

# From <linux/ptrace.h>, which ptrace(2) describes.
SEIZE, INTERRUPT, SYSCALL, SYSCALL_INFO = 0x4206, 0x4207, 24, 0x420E
TRACE_SYSCALL_STOPS, TRACE_CLONE, END_WITH_TRACER = 0x01, 0x08, 0x100000
SYSCALL_STOP = signal.SIGTRAP | 0x80
ENTERS = 1
ALL_THREADS = 0x40000000
"""waitpid's __WALL."""

WRITES = {
    "x86_64": {
        1: "write",
        18: "pwrite64",
        20: "writev",
        296: "pwritev",
        328: "pwritev2",
        44: "sendto",
        46: "sendmsg",
        40: "sendfile",
        74: "fsync",
        75: "fdatasync",
        77: "ftruncate",
        285: "fallocate",
        82: "rename",
        264: "renameat",
        316: "renameat2",
        87: "unlink",
        263: "unlinkat",
    },
    "aarch64": {
        64: "write",
        68: "pwrite64",
        66: "writev",
        70: "pwritev",
        287: "pwritev2",
        206: "sendto",
        211: "sendmsg",
        71: "sendfile",
        82: "fsync",
        83: "fdatasync",
        46: "ftruncate",
        47: "fallocate",
        38: "renameat",
        276: "renameat2",
        35: "unlinkat",
    },
}
BY_PATH = {"rename", "renameat", "renameat2", "unlink", "unlinkat"}
"""Their first argument is no descriptor of a file."""

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


class SyscallInfo(ctypes.Structure):
    """struct ptrace_syscall_info, as far as a call's entry has it."""

    _fields_ = [
        ("op", ctypes.c_uint8),
        ("pad", ctypes.c_uint8 * 3),
        ("arch", ctypes.c_uint32),
        ("instruction_pointer", ctypes.c_uint64),
        ("stack_pointer", ctypes.c_uint64),
        ("nr", ctypes.c_uint64),
        ("args", ctypes.c_uint64 * 6),
    ]


def ptrace(request: int, thread: int, address: int = 0, data: object = 0) -> int:
    """As the system call. A thread that is gone, or being killed, is no error.

    Raises:
        OSError: it is not allowed here.
    """
    done: int = libc.ptrace(request, thread, address, data)
    if done < 0 and (error := ctypes.get_errno()) != 3:  # ESRCH
        raise OSError(error, f"ptrace: {os.strerror(error)}")
    return done


class Tracer:
    """Counts, and kills. Only the thread that made it may use it, and it must be the only one of
    its process that waits for children.

    Attributes:
        writes: what was counted, as ``pwrite64 a.db``; the one that was not done is the last.
    """

    def __init__(self, pid: int, kill_at: int) -> None:
        """
        Args:
            pid: a child of this process.
            kill_at: in place of which write it is killed, from 1; 0: of none.
        """
        self.writes: list[str] = []
        self._pid = pid
        self._kill_at = kill_at
        self._names = WRITES[platform.machine()]

    def attach(self) -> int:
        """Stop, and let go on, every thread that there is; how many that are."""
        seized: set[int] = set()
        while new := {int(name) for name in os.listdir(f"/proc/{self._pid}/task")} - seized:
            for thread in new:
                options = TRACE_SYSCALL_STOPS | TRACE_CLONE | END_WITH_TRACER
                ptrace(SEIZE, thread, data=options)
                ptrace(INTERRUPT, thread)
            seized |= new
        return len(seized)

    def follow(self) -> int:
        """Until the process has ended; its exit status, negative for a signal."""
        while True:
            thread, status = os.waitpid(-1, ALL_THREADS)
            if os.WIFSTOPPED(status):
                ptrace(SYSCALL, thread, data=self._stopped(thread, status))
            elif thread == self._pid:
                return os.waitstatus_to_exitcode(status)

    def _stopped(self, thread: int, status: int) -> int:
        """What to do about a stop; the signal that the thread is to have."""
        if os.WSTOPSIG(status) == SYSCALL_STOP:
            self._at_syscall(thread)
            return 0
        return 0 if status >> 16 else os.WSTOPSIG(status)

    def _at_syscall(self, thread: int) -> None:
        info = SyscallInfo()
        if ptrace(SYSCALL_INFO, thread, ctypes.sizeof(info), ctypes.byref(info)) < 0:
            return
        name = self._names.get(info.nr)
        if info.op != ENTERS or name is None or len(self.writes) == self._kill_at > 0:
            return
        target = "" if name in BY_PATH else self._target(int(info.args[0]))
        if target is None:
            return
        self.writes.append(f"{name} {target}".strip())
        if len(self.writes) == self._kill_at:
            os.kill(self._pid, signal.SIGKILL)

    def _target(self, descriptor: int) -> str | None:
        """A file's name, or what else it is; None for what nobody outside sees."""
        try:
            link = os.readlink(f"/proc/{self._pid}/fd/{descriptor}")
        except OSError:
            return None
        if link.startswith(("pipe:", "anon_inode:", "/dev/")):
            return None
        return Path(link).name if link.startswith("/") else link.partition(":")[0]
