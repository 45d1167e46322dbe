"""The time since when a run has been due: the one that has been due longest comes first."""

from __future__ import annotations

from perdure.model import RunInfo


def due_since(row: RunInfo, now: int) -> int:
    """Returns the time since when a run that is ready at `now` counts as due, in microseconds since
    1970: since its timer was up; otherwise since its row last changed, when it began to wait or
    became `pending`.

    A resumed run is due again from then on: so runs that wake often do not starve others.
    """
    return (
        row.wake_at_micros
        if row.status == "waiting" and 0 < row.wake_at_micros <= now
        else row.changed_at_micros
    )
