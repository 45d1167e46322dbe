"""The open questions of all runs of a store, a page at a time: for whoever has to answer them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from perdure.core.arguments.checks import count, flag
from perdure.core.arguments.names import check_name, check_words
from perdure.engine.journal.question_digest import ASKS
from perdure.engine.journal.questions import Question
from perdure.errors import Corrupt, UnsupportedFormat
from perdure.model import RunInfo
from perdure.storage.capabilities import Backend, RunQuery

PAGE = 256
"""The number of rows of runs that are read at a time."""


def open_questions(
    backend: Backend,
    questions: Callable[[RunInfo], list[Question]],
    agent: str | None,
    after: Question | str | None,
    limit: int | None,
    damaged_too: bool,
) -> list[Question]:
    """See `Store.questions`. `questions`: gives those of one run."""
    agent = None if agent is None else check_name(agent, "an agent")
    limit = None if limit is None else count(limit, "limit=")
    passes_over = (Corrupt, UnsupportedFormat) if flag(damaged_too, "damaged_too=") else ()
    last = after.run if isinstance(after, Question) else after
    last = None if last is None else check_words(last, "after=")
    found: list[Question] = []
    while limit is None or len(found) < limit:
        rows = backend.runs(RunQuery(agent=agent, unfinished=True, after=last, limit=PAGE))
        for row in rows:
            if row.status == "waiting" and ASKS not in row.waits:
                continue  # a page of those that wait for something else is read at once
            with suppress(*passes_over):
                found += questions(row)
            if limit is not None and len(found) >= limit:
                break
        if len(rows) < PAGE:
            break
        last = rows[-1].id
    return found
