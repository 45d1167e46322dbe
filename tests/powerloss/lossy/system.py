"""A file system on a `Disk`: what each request of the kernel comes to."""

from __future__ import annotations

import errno
from collections.abc import Callable

from tests.powerloss.lossy import kernel
from tests.powerloss.lossy.disk import Disk
from tests.powerloss.lossy.kernel import Call, Request
from tests.powerloss.lossy.nodes import File, Folder, Node

SET_MODE, SET_USER, SET_GROUP, SET_SIZE = 1, 2, 4, 8


class System:
    """Answers requests. The kernel knows nodes by their numbers until it forgets them."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._nodes: dict[int, Node] = {kernel.ROOT: disk.root}
        self._known: dict[int, int] = {}
        self._lists: dict[int, list[tuple[bytes, Node]]] = {}
        self._calls: dict[int, Callable[[Request], bytes]] = {
            Call.INIT: kernel.hello,
            Call.LOOKUP: self._look_up,
            Call.GETATTR: self._tell,
            Call.SETATTR: self._set,
            Call.MKDIR: self._make_folder,
            Call.UNLINK: self._remove,
            Call.RMDIR: self._remove_folder,
            Call.RENAME: self._rename_plainly,
            Call.RENAME2: self._rename,
            Call.LINK: self._link,
            Call.OPEN: self._open,
            Call.READ: self._read,
            Call.WRITE: self._write,
            Call.STATFS: lambda _: kernel.room(),
            Call.RELEASE: self._release,
            Call.FSYNC: self._sync,
            Call.FSYNCDIR: self._sync,
            Call.OPENDIR: self._open_folder,
            Call.READDIR: self._list,
            Call.RELEASEDIR: self._close_folder,
            Call.CREATE: self._create,
            Call.FORGET: self._forget,
            Call.BATCH_FORGET: self._forget_many,
        }

    def do(self, request: Request) -> bytes:
        """The answer's body.

        Raises:
            OSError: that is the answer.
        """
        call = self._calls.get(request.call)
        if call is None:
            raise OSError(errno.ENOSYS, "not here")
        return call(request)

    # -- nodes -----------------------------------------------------------------------------------

    def _file(self, number: int) -> File:
        node = self._nodes[number]
        if not isinstance(node, File):
            raise IsADirectoryError(errno.EISDIR, "a folder")
        return node

    def _folder(self, number: int) -> Folder:
        node = self._nodes[number]
        if not isinstance(node, Folder):
            raise NotADirectoryError(errno.ENOTDIR, "a file")
        return node

    def _named(self, folder: Folder, name: bytes) -> Node:
        node = self._disk.names(folder).get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such name")
        return node

    def _entry(self, node: Node) -> bytes:
        """The kernel learns of a node once more."""
        self._nodes[node.number] = node
        self._known[node.number] = self._known.get(node.number, 0) + 1
        return kernel.entry(node.attributes())

    def _forget(self, request: Request) -> bytes:
        self._forget_one(request.node, *request.take("<Q"))
        return b""

    def _forget_many(self, request: Request) -> bytes:
        count, _ = request.take("<II")
        numbers = request.take(f"<8x{2 * count}Q")
        for node, times in zip(numbers[::2], numbers[1::2], strict=True):
            self._forget_one(node, times)
        return b""

    def _forget_one(self, node: int, times: int) -> None:
        self._known[node] = self._known.get(node, 0) - times
        if self._known[node] <= 0 and node != kernel.ROOT:
            self._known.pop(node)
            self._nodes.pop(node, None)

    def _tell(self, request: Request) -> bytes:
        return kernel.told(self._nodes[request.node].attributes())

    def _set(self, request: Request) -> bytes:
        valid, size, mode, user, group = request.take("<I12xQ44xI4xII")
        node = self._nodes[request.node]
        if valid & SET_SIZE:
            file = self._file(request.node)
            file.truncate(size)
            self._disk.wrote(file)
        node.change(
            mode if valid & SET_MODE else None,
            user if valid & SET_USER else None,
            group if valid & SET_GROUP else None,
        )
        return self._tell(request)

    # -- names -----------------------------------------------------------------------------------

    def _look_up(self, request: Request) -> bytes:
        return self._entry(self._named(self._folder(request.node), request.names()[0]))

    def _create(self, request: Request) -> bytes:
        _, mode = request.take("<II")
        folder, name = self._folder(request.node), request.names(16)[0]
        file = self._disk.create(folder, name, mode, request.user, request.group)
        file.open()
        return self._entry(file) + kernel.opened(0)

    def _make_folder(self, request: Request) -> bytes:
        (mode,) = request.take("<I")
        folder, name = self._folder(request.node), request.names(8)[0]
        return self._entry(self._disk.make_folder(folder, name, mode, request.user, request.group))

    def _link(self, request: Request) -> bytes:
        file = self._file(*request.take("<Q"))
        self._disk.link(file, self._folder(request.node), request.names(8)[0])
        return self._entry(file)

    def _remove(self, request: Request) -> bytes:
        self._disk.remove(self._folder(request.node), request.names()[0])
        return b""

    def _remove_folder(self, request: Request) -> bytes:
        folder, name = self._folder(request.node), request.names()[0]
        removed = self._named(folder, name)
        if isinstance(removed, Folder) and self._disk.names(removed):
            raise OSError(errno.ENOTEMPTY, "there is something in it")
        return self._remove(request)

    def _rename_plainly(self, request: Request) -> bytes:
        (folder,) = request.take("<Q")
        return self._rename_to(request, folder, *request.names(8))

    def _rename(self, request: Request) -> bytes:
        folder, flags = request.take("<QI")
        if flags:
            raise OSError(errno.EINVAL, "only plain renames")
        return self._rename_to(request, folder, *request.names(16))

    def _rename_to(self, request: Request, folder: int, name: bytes, new: bytes) -> bytes:
        target = self._folder(folder)
        replaced = self._disk.names(target).get(new)
        if isinstance(replaced, Folder) and self._disk.names(replaced):
            raise OSError(errno.ENOTEMPTY, "there is something in it")
        self._disk.rename((self._folder(request.node), name), (target, new))
        return b""

    def _open_folder(self, request: Request) -> bytes:
        folder = self._folder(request.node)
        handle = request.unique  # never twice
        self._lists[handle] = list(self._disk.names(folder).items())
        return kernel.opened(handle)

    def _list(self, request: Request) -> bytes:
        handle, offset, room = request.take("<QQI")
        answer = b""
        for place, (name, node) in enumerate(self._lists[handle][offset:], offset + 1):
            line = kernel.listed(node.number, place, node.mode, name)
            if len(answer) + len(line) > room:
                break
            answer += line
        return answer

    def _close_folder(self, request: Request) -> bytes:
        del self._lists[request.take("<Q")[0]]
        return b""

    # -- what is in files ------------------------------------------------------------------------

    def _open(self, request: Request) -> bytes:
        self._file(request.node).open()
        return kernel.opened(0)

    def _release(self, request: Request) -> bytes:
        self._file(request.node).release()
        return b""

    def _read(self, request: Request) -> bytes:
        _, offset, size = request.take("<QQI")
        return self._file(request.node).read(offset, size)

    def _write(self, request: Request) -> bytes:
        _, offset, size = request.take("<QQI")
        file = self._file(request.node)
        file.write(offset, request.body[40 : 40 + size])
        self._disk.wrote(file)
        return kernel.written(size)

    def _sync(self, request: Request) -> bytes:
        self._disk.sync(self._nodes[request.node])
        return b""
