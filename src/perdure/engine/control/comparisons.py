"""The last comparison of a run's surroundings with those that it recorded, for people."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.core.format.records import Guarded, Stopped
from perdure.engine.control.run_report import GuardReport
from perdure.model import Commit
from perdure.state.surroundings import SurroundingsChange


def last_comparison(oldest_first: Iterable[Commit], run: str) -> GuardReport | None:
    """Returns the last comparison that the commits of a run's turn record; of several without a
    change, that with the last change. None: there is none."""
    last: GuardReport | None = None
    for commit in oldest_first:
        for record in commit.typed:
            if record.run != run or not isinstance(record, Guarded | Stopped) or not record.now:
                continue
            if last is not None and last.changed and not record.changed:
                continue
            last = GuardReport(
                commit.at,
                commit.seq,
                record.on_change if isinstance(record, Guarded) else "stop",
                [SurroundingsChange(*one) for one in record.changed],
                dict(record.now.dependencies),
                record.now.config,
                sorted(record.now.environment),
            )
    return last
