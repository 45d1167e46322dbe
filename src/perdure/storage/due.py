"""Since when a run could be gone on with: who has been due for longest comes first."""

from __future__ import annotations

from perdure.model import RunInfo


def due_since(row: RunInfo, now: int) -> int:
    """Since when a run that is ready at `now` counts as due, in microseconds since 1970: since its
    timer was up; else since its row last changed, as it began to wait or was put to `pending`.

    Who is gone on with is due anew afterwards: so runs that wake again and again pass nobody over.
    """
    return row.wake_at if row.status == "waiting" and 0 < row.wake_at <= now else row.changed_at
