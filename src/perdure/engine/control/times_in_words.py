"""Times and lengths of time, in words for people."""

from __future__ import annotations

from datetime import datetime, timedelta


def clock(at: datetime) -> str:
    """Returns a time in the local zone; with the day only if it is not today."""
    local = at.astimezone()
    today = datetime.now().astimezone().date() == local.date()
    return local.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S")


def moment(at: datetime) -> str:
    """Returns it as it follows a verb."""
    return f"at {clock(at)}"


def length(passed: timedelta) -> str:
    """Returns a length of time in one unit or two."""
    seconds = max(int(passed.total_seconds()), 0)
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        number, seconds = divmod(seconds, size)
        if number or (unit == "s" and not parts):
            parts.append(f"{number} {unit}")
    return " ".join(parts[:2])
