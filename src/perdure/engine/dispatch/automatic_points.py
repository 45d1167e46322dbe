"""Automatic checkpoints of the runs that execute here: a watcher names their commits from beside
them (docs/decisions/0049-names-beside-the-branch.md).
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from perdure.errors import Conflict, NotFound, PerdureError
from perdure.model import AgentInfo
from perdure.state.checkpoint_policy import CheckpointPolicy
from perdure.state.context import Context
from perdure.state.head_naming import name_commit
from perdure.state.run_moves import free_name
from perdure.storage.log.reader import LogReader
from perdure.system import logs
from perdure.system.flag import Flag
from perdure.system.threads import begin

LOOK_S = 0.25
"""The interval at which a watcher looks whether there are more commits to name."""

JOIN_MAX_S = 10.0

_log = logs.logger("perdure.engine")


class Watcher:
    """Names the commits of one branch, from when a run begins to execute until it is left.

    Its thread touches nothing of the run's: it reads the log, and commits beside it. A failure to
    name is logged, and no failure of the run.
    """

    def __init__(
        self, context: Context, policy: CheckpointPolicy, info: AgentInfo, branch: str
    ) -> None:
        self._context, self._policy, self._branch = context, policy, branch
        self._reader = LogReader(context.backend, info)  # its own: the run's is its thread's
        self._over = Flag()
        self._seen = 0
        self._seen = self._head()
        self._count = 0
        self._named_at = time.monotonic()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins to watch; where there is no thread to be had, the run goes on unwatched."""
        thread = threading.Thread(target=self._watch, name="perdure-points", daemon=True)
        try:
            self._thread = thread
            begin(thread)
        except PerdureError as error:
            self._thread = None
            _log.warning("run on %s is not watched: %s", self._reader.target(), error)

    def stop(self, *, leaves: bool) -> None:
        """Ends; what it was to name until now is named. `leaves`: the run is left, as its process
        ends gracefully."""
        self._over.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(JOIN_MAX_S)
        if self._policy.watches:
            self._name_each()
        if leaves and self._policy.at_exit:
            self._name(self._head())

    def _watch(self) -> None:
        every = self._policy.every_seconds
        looks = [LOOK_S] if self._policy.every_commits is not None else []
        while not self._over.wait(min([*looks, *([] if every is None else [every])])):
            self._name_each()
            if every is not None and time.monotonic() - self._named_at >= every:
                self._named_at = time.monotonic()
                self._name(self._head())

    def _name_each(self) -> None:
        """Names each n-th of the commits of the branch since the last look. They may be old: others
        have come since."""
        every = self._policy.every_commits
        head = self._head() if every is not None else self._seen
        if every is None or head <= self._seen:
            return
        behind: list[int] = []
        try:
            for commit in self._reader.ancestors(head, damaged="all"):
                if commit.seq <= self._seen:
                    break
                behind.append(commit.seq)
        except PerdureError:
            return  # that is the run's to say
        self._seen = head
        for seq in reversed(behind):
            self._count += 1
            if self._count % every == 0:
                self._name(seq)

    def _head(self) -> int:
        try:
            ref = self._context.backend.ref(self._reader.no, self._branch)
        except PerdureError:
            return self._seen
        return ref.seq if ref is not None and not ref.deleted else 0

    def _name(self, seq: int) -> None:
        if not seq:
            return
        try:
            for _ in range(3):
                with suppress(Conflict):  # whoever else names it: another process, a moment ago
                    name_commit(
                        self._context, self._reader, free_name(self._reader, f"auto {seq}"), seq
                    )
                    return
        except NotFound:
            return  # its agent was deleted meanwhile, or retention was there first
        except PerdureError as error:
            _log.warning("%s is not named: %s", self._reader.target(seq), error)
