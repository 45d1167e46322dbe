"""Words for people: sizes, times, and values on one line."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from perdure.cli.plain import INT_BITS_MAX
from perdure.core.values import zones

REMOVED = "removed by retention"

STATUS_STYLES = {
    "running": "cyan",
    "pending": "cyan",
    "waiting": "yellow",
    "needs_attention": "bold red",
    "done": "green",
    "failed": "red",
    "cancelled": "dim",
}


def cut(words: str, limit: int | None) -> str:
    """Returns words of `limit` characters at most; left-out ones show as …."""
    return words if limit is None or len(words) <= limit else words[: max(limit - 1, 1)] + "…"


def size(count: int) -> str:
    if count < 1000:
        return f"{count} B"
    number = float(count)
    for unit in ("kB", "MB", "GB", "TB"):
        number /= 1000
        if number < 999.95 or unit == "TB":
            return f"{number:.1f} {unit}"
    raise AssertionError("unreachable")


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def moment(at: datetime) -> str:
    """Returns a moment in the local zone, to the second."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def ago(at: datetime, now: datetime | None = None) -> str:
    seconds = ((now or datetime.now(UTC)) - at).total_seconds()
    if seconds < 0:
        return "in the future"
    for unit, length in (("day", 86_400), ("hour", 3600), ("min", 60)):
        if seconds >= length:
            number = int(seconds // length)
            return f"{number} {unit}{'s' if number > 1 and unit != 'min' else ''} ago"
    return "just now" if seconds < 2 else f"{int(seconds)} s ago"


def span(length: timedelta) -> str:
    """Returns a length of time, in one unit or two; short ones to the millisecond."""
    seconds = max(length.total_seconds(), 0.0)
    if seconds < 10:
        return f"{seconds:.3f} s" if seconds < 1 else f"{seconds:.1f} s"
    left, parts = round(seconds), list[str]()
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        number, left = divmod(left, size)
        if number:
            parts.append(f"{number} {unit}")
    return " ".join(parts[:2])


def full(value: Any) -> str:
    """Returns a value as Python writes it, but with bare dict keys where they are names."""
    return short(value, limit=None)


def short(value: Any, limit: int | None = 60) -> str:
    """Returns a value on one line, of about `limit` characters at most."""
    if isinstance(value, str):
        return _short_text(value, limit)
    if isinstance(value, bytes):
        return _short_bytes(value, limit)
    if isinstance(value, int) and value.bit_length() > INT_BITS_MAX:
        return hex(value) if limit is None else f"{hex(value)[:limit]}…"
    if isinstance(value, dict):
        pairs = ((_key(key), item) for key, item in value.items())
        return _short_items(pairs, "{", "}", len(value), limit)
    if isinstance(value, list):
        return _short_items((("", item) for item in value), "[", "]", len(value), limit)
    if isinstance(value, tuple):
        return _short_items((("", item) for item in value), "(", ")", len(value), limit)
    if isinstance(value, set | frozenset):
        items = sorted(value, key=repr)
        name = "" if isinstance(value, set) and value else type(value).__name__ + "("
        end = ")" if name else "}"
        opening = name if not value else name + "{"
        closing = end if not value else ("})" if name else "}")
        return _short_items((("", item) for item in items), opening, closing, len(items), limit)
    if isinstance(value, datetime):
        key = str(value.tzinfo) if type(value.tzinfo) is zones.MissingZone else ""
        return zones.wall_clock(value, " ") + f"[{key}]" * bool(key)
    return cut(repr(value), limit)


def _key(key: Any) -> str:
    bare = isinstance(key, str) and key.isidentifier()
    return (key if bare else short(key, 40)) + ": "


def _short_items(
    items: Iterable[tuple[str, Any]], opening: str, closing: str, number: int, limit: int | None
) -> str:
    parts: list[str] = []
    used = len(opening) + len(closing)
    for index, (label, item) in enumerate(items):
        left = None if limit is None else limit - used - len(label)
        if left is not None and left < 8 and index:
            parts.append(f"… {number - index} more")
            break
        part = label + short(item, None if left is None else max(left, 8))
        parts.append(part)
        used += len(part) + 2
    return opening + ", ".join(parts) + closing


def _short_text(value: str, limit: int | None) -> str:
    if limit is None or len(value) <= limit - 2:
        return repr(value)
    return repr(value[: max(limit - 3, 4)])[:-1] + "…'"


def _short_bytes(value: bytes, limit: int | None) -> str:
    if limit is None or len(value) <= max(limit // 4, 8):
        return repr(value)
    return f"{value[: max(limit // 8, 4)]!r}… ({size(len(value))})"
