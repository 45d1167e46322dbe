"""The older checkpoints that a saver was asked for by their ids: a writer that continues from one
means it."""

from __future__ import annotations

from collections import OrderedDict

from perdure.system.locks import Lock

ASKED_MAX = 16_384
"""Some 5 MB. Who asks for so many others between reading one and going on from it is refused
where races are, and reads it again."""


class Requested:
    """Checkpoints, by thread, namespace and id. Safe to share between Python's threads."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str, str], None] = OrderedDict()
        self._mutex = Lock()

    def note(self, thread: str, namespace: str, checkpoint_id: str) -> None:
        """Notes that a checkpoint was asked for although there was a later one."""
        key = thread, namespace, checkpoint_id
        with self._mutex:
            self._known[key] = None
            self._known.move_to_end(key)
            if len(self._known) > ASKED_MAX:
                self._known.popitem(last=False)

    def knows(self, thread: str, namespace: str, checkpoint_id: str) -> bool:
        return (thread, namespace, checkpoint_id) in self._known
