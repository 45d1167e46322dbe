"""The logs from which a thread is read: its own, and those that it was copied from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.adapters import COPIED, ForeignLog, ForeignLogs
from perdure.errors import NotFound
from perdure.integrations.langgraph.threads.log_view import View
from perdure.integrations.langgraph.threads.record import malformed


def views_of(logs: ForeignLogs, own: View) -> list[View]:
    """The views of a thread: that of its own log, then of the one that it was copied from, and so
    on, however many these are.

    Raises:
        NotFound: one of them is not in this store. Corrupt: they refer to each other in a circle.
    """
    found, known = [own], {own.log.info.no}
    while True:
        first = found[-1].commit(1)
        copied = next((one for one in first.records if one.get("t") == COPIED), None)
        if copied is None:
            return found
        origin = logs.incarnation(copied["agent"], copied["incarnation"])
        if origin is None or origin.info.purged or _is_another(origin, copied):
            raise NotFound(
                "the thread that it was copied from is not in this store",
                target=f"thread {own.log.info.name!r}",
                hint=f"bring thread {copied['agent']!r} along from where it was, or copy it again",
            )
        if origin.info.no in known:
            raise malformed(first)
        known.add(origin.info.no)
        found.append(View(origin, copied["seq"], copied["removed"]))


def _is_another(origin: ForeignLog, copied: Mapping[str, Any]) -> bool:
    """Returns True if a log is not the one that the copy was made of, but another of that name in
    this store: thread ids like "1" are everywhere. A copy of an earlier version does not say which
    it was."""
    if "id" not in copied:
        return False
    try:
        return origin.commit(copied["seq"]).id != bytes(copied["id"])
    except NotFound:
        return True
