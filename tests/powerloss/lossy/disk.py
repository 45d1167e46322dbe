"""A disk that keeps what was synced: its tree of names, and what becomes of it without power.

Changes of names stand in a row until something makes them lasting. A power loss takes those that
nothing did, but for some that the disk had already, by chance; never one whose name or folder rests
on another one that it takes.
"""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from tests.powerloss.lossy.nodes import File, Folder, Node

Names = Literal["kept", "in order", "apart"]
"""What makes a name lasting. Kept: nothing need to. In order: any sync, and all the names changed
before it too, as in the journaling file systems. Apart: only a sync of its folder, or of the node
itself; no other folder's names come along, but those that lead there."""

EARLY = 0.02
"""Often enough that most power losses find something of it."""


class Change(Struct, eq=False):
    """A change of names: `old` goes, `new` comes to be, each a folder and a name there."""

    old: tuple[Folder, bytes] | None
    new: tuple[Folder, bytes] | None
    node: Node

    def touches(self) -> set[int]:
        """The nodes with which it stands or falls."""
        places = [place[0].number for place in (self.old, self.new) if place]
        return {self.node.number, *places}


class Lost(Struct):
    """What a power loss took."""

    files: int = 0
    pages: int = 0
    names: int = 0


class Disk:
    """See the module.

    Args:
        root: descriptor of the folder that has what was synced.
        shelf: descriptor of an empty folder beside it, for what has no name there.
        early: chance at each change that the system writes something back by itself.
    """

    def __init__(
        self, root: int, shelf: int, names: Names, dice: random.Random, early: float = EARLY
    ) -> None:
        self._early = early
        self._shelf = shelf
        self._rule = names
        self._dice = dice
        self._count = 1
        self._pending: list[Change] = []
        self._dirty: dict[int, File] = {}
        self._found_files: dict[int, File] = {}
        found = os.stat(root)
        self.root = Folder(1, found.st_mode, found.st_uid, found.st_gid, root)

    # -- names -----------------------------------------------------------------------------------

    def names(self, folder: Folder) -> dict[bytes, Node]:
        """Of a folder, as programs see it."""
        if folder.names is None:
            folder.names = {}
            for name in map(os.fsencode, os.listdir(folder.descriptor)):
                folder.names[name] = self._found(folder, name)
        return folder.names

    def _found(self, folder: Folder, name: bytes) -> Node:
        status = os.stat(name, dir_fd=folder.descriptor, follow_symlinks=False)
        self._count += 1
        if stat.S_ISDIR(status.st_mode):
            place = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder.descriptor)
            return Folder(self._count, status.st_mode, status.st_uid, status.st_gid, place)
        if not stat.S_ISREG(status.st_mode):
            raise RuntimeError(f"{name!r}: this disk has folders and files, and nothing else")
        if status.st_ino not in self._found_files:  # else it is another name of the same file
            os.link(
                name,
                str(self._count),
                src_dir_fd=folder.descriptor,
                dst_dir_fd=self._shelf,
                follow_symlinks=False,
            )
            file = self._found_files[status.st_ino] = File(self._count, self._shelf)
            file.links = status.st_nlink
        return self._found_files[status.st_ino]

    def create(self, folder: Folder, name: bytes, mode: int, user: int, group: int) -> File:
        self._count += 1
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        descriptor = os.open(str(self._count), flags, 0o600, dir_fd=self._shelf)
        os.fchmod(descriptor, stat.S_IMODE(mode))
        if os.geteuid() == 0:
            os.fchown(descriptor, user, group)
        os.close(descriptor)
        file = File(self._count, self._shelf)
        self._change(None, (folder, name), file)
        return file

    def make_folder(self, folder: Folder, name: bytes, mode: int, user: int, group: int) -> Folder:
        self._count += 1
        made = Folder(self._count, mode, user, group, -1)
        self._change(None, (folder, name), made)
        return made

    def link(self, file: File, folder: Folder, name: bytes) -> None:
        file.links += 1
        self._change(None, (folder, name), file)

    def remove(self, folder: Folder, name: bytes) -> None:
        node = self.names(folder)[name]
        self._forget_link(node)
        self._change((folder, name), None, node)

    def rename(self, old: tuple[Folder, bytes], new: tuple[Folder, bytes]) -> None:
        replaced = self.names(new[0]).get(new[1])
        if replaced is not None:
            self._forget_link(replaced)
        self._change(old, new, self.names(old[0])[old[1]])

    def _forget_link(self, node: Node) -> None:
        if isinstance(node, File):
            node.links -= 1

    def _change(
        self, old: tuple[Folder, bytes] | None, new: tuple[Folder, bytes] | None, node: Node
    ) -> None:
        if old:
            del self.names(old[0])[old[1]]
        if new:
            self.names(new[0])[new[1]] = node
        self._pending.append(Change(old, new, node))
        if self._rule == "kept":
            self._settle(self._pending)
        elif self._dice.random() < self._early:
            self._settle(self._pending[: self._dice.randint(0, len(self._pending))])

    # -- what makes them lasting -----------------------------------------------------------------

    def wrote(self, file: File) -> None:
        """A file was written, or cut off."""
        self._dirty[file.number] = file
        if self._dice.random() < self._early:
            early = self._dice.choice(list(self._dirty.values()))
            pages = list(early.unsynced)
            early.write_back(self._dice.sample(pages, self._dice.randint(0, len(pages))))

    def sync(self, node: Node) -> None:
        if isinstance(node, File):
            self._dirty.pop(node.number, None)
            node.sync()
        apart = self._rule == "apart"
        self._settle(self._with(node, self._pending) if apart else self._pending)

    def _with(self, node: Node, changes: list[Change]) -> list[Change]:
        """Those of the changes that concern a node, and those on which they rest."""
        reached, found = {node.number}, []
        for change in reversed(changes):
            if reached & change.touches():
                reached |= change.touches()
                found.append(change)
        return found[::-1]

    def _settle(self, changes: Iterable[Change]) -> None:
        """The disk has these, in their order."""
        for change in list(changes):
            self._pending.remove(change)
            old, new, node = change.old, change.new, change.node
            if old and new:
                os.rename(
                    old[1], new[1], src_dir_fd=old[0].descriptor, dst_dir_fd=new[0].descriptor
                )
            elif new and isinstance(node, File):
                self._settle_link(node, *new)
            elif new and isinstance(node, Folder):
                os.mkdir(new[1], dir_fd=new[0].descriptor)
                node.descriptor = os.open(new[1], os.O_RDONLY, dir_fd=new[0].descriptor)
                node.settle_owner()
            elif old and isinstance(node, File):
                os.unlink(old[1], dir_fd=old[0].descriptor)
            elif old and isinstance(node, Folder):
                os.rmdir(old[1], dir_fd=old[0].descriptor)
                os.close(node.descriptor)

    def _settle_link(self, file: File, folder: Folder, name: bytes) -> None:
        os.link(
            str(file.number),
            name,
            src_dir_fd=self._shelf,
            dst_dir_fd=folder.descriptor,
            follow_symlinks=False,
        )

    # -- the power -------------------------------------------------------------------------------

    def lose_power(self, kept: float) -> Lost:
        """Nothing is asked of it any more. `kept`: the share of what was not synced that is there,
        drawn by chance."""
        lost = Lost()
        if kept and self._pending:
            until = self._dice.randint(0, len(self._pending))
            left = self._pending[:until]
            if self._rule == "apart" and left:
                left = self._with(self._dice.choice(left).node, left)
            self._settle(left)
        lost.names = len(self._pending)
        for file in self._dirty.values():
            pages = file.tear(self._dice, kept)
            lost.pages += pages
            lost.files += bool(pages)
        return lost
