"""The library's loggers: their messages are safe to print, whatever the names in them hold."""

from __future__ import annotations

import logging

from perdure.visible import visible_lines


def logger(name: str) -> logging.Logger:
    """Returns a logger whose messages escape what is not printable; see `perdure.visible`."""
    made = logging.getLogger(name)
    if _show not in made.filters:
        made.addFilter(_show)
    return made


def _show(record: logging.LogRecord) -> bool:
    said = record.getMessage()
    shown = visible_lines(said)
    if shown != said:  # all others keep their format, by which some group messages
        record.msg, record.args = shown, ()
    return True
