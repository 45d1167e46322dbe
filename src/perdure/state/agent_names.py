"""The names of an agent, its branches and checkpoints, as a view on its log."""

from __future__ import annotations

from perdure.core.format import records
from perdure.model import Checkpoint, Commit
from perdure.state.checkpoints import recorded


class Names:
    """The names of one agent, computed from the commits of its log, which are fed in order.

    Attributes:
        refs: by name: its kind, its commit, and True if it is deleted.
        epochs: by branch: the greatest epoch that wrote to it.
        points: the record of each checkpoint.
        deleted: True if the agent is.
    """

    def __init__(self) -> None:
        self.refs: dict[str, tuple[str, int, bool]] = {}
        self.epochs: dict[str, int] = {}
        self.points: dict[str, Checkpoint] = {}
        self.deleted = False

    def after(self, commit: Commit) -> None:
        self.refs[commit.branch] = ("branch", commit.seq, False)
        self.epochs[commit.branch] = max(self.epochs.get(commit.branch, 0), commit.epoch)
        for record in commit.typed:
            self._note(record, commit)

    def _note(self, record: records.Record, commit: Commit) -> None:
        match record:
            case records.CheckpointRecord(name=name):
                point = self.points[name] = recorded(record, commit)
                self.refs[name] = ("checkpoint", point.seq, False)
            case records.Named(name=name):
                kind, seq, _ = self.refs.get(name, ("branch", 0, False))
                self.refs[name] = (kind, seq, True)
            case records.Deleted():
                self.deleted = True
                self.refs = {name: (kind, at, True) for name, (kind, at, _) in self.refs.items()}
