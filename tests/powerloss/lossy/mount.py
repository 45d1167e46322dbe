"""Mounting a file system in a mount namespace of this process's own, which ends with it.

Nobody else sees it but who enters the namespace, and nothing is left behind. Who is not root does
it in a user namespace, too, where the system allows that.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

NEW_MOUNTS, NEW_USERS = 0x00020000, 0x10000000  # CLONE_NEWNS, CLONE_NEWUSER
NO_SUID, NO_DEVICES, RECURSIVE, PRIVATE = 0x2, 0x4, 0x4000, 0x40000  # of mount(2)

_system = ctypes.CDLL(None, use_errno=True)


def leave() -> None:
    """Into namespaces of our own. /dev/fuse must be opened after that.

    Raises:
        OSError: the system does not allow it.
    """
    user, group = os.geteuid(), os.getegid()
    users = 0 if user == 0 else NEW_USERS
    _check(_system.unshare(NEW_MOUNTS | users), "unshare")
    if users:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _mount("none", "/", None, RECURSIVE | PRIVATE, None)  # none of ours comes to others


def mount(device: int, folder: str) -> None:
    """Over a folder, for all users in these namespaces.

    Raises:
        OSError: the system does not allow it.
    """
    options = (
        f"fd={device},rootmode=40000,user_id={os.geteuid()},group_id={os.getegid()},"
        "allow_other,default_permissions"
    )
    _mount("lossy", folder, "fuse", NO_SUID | NO_DEVICES, options)


def _mount(source: str, target: str, kind: str | None, flags: int, options: str | None) -> None:
    words = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    data = None if options is None else os.fsencode(options)
    _check(_system.mount(*words, ctypes.c_ulong(flags), data), f"mount on {target}")


def _check(failed: int, what: str) -> None:
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
