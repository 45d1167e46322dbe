"""Machines that know other time zones than this one: what one of them wrote, any other reads."""

from __future__ import annotations

import sys
import zoneinfo
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from perdure.core.values import zones

_HERE = zoneinfo.TZPATH

KEYS = (
    "Europe/Tallinn",
    "Pacific/Chatham",
    "America/St_Johns",
    "Asia/Kathmandu",
    "Etc/GMT+5",
)
"""The zones that a machine may lack; it has all others."""


@contextmanager
def machine(*known: str) -> Iterator[None]:
    """While the block runs, the tz database has of `KEYS` just these zones."""
    with TemporaryDirectory() as folder:
        for key in known:
            place = Path(folder, key)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(_rules(key))
        package = {name: one for name, one in sys.modules.items() if name.startswith("tzdata")}
        for name in package:
            del sys.modules[name]
        sys.modules["tzdata"] = None  # type: ignore[assignment]
        _look_at([folder])
        try:
            yield
        finally:
            del sys.modules["tzdata"]
            sys.modules.update(package)
            _look_at(list(_HERE))


def _rules(key: str) -> bytes:
    for folder in _HERE:
        if (found := Path(folder, key)).is_file():
            return found.read_bytes()
    from importlib.resources import files

    return files("tzdata.zoneinfo").joinpath(*key.split("/")).read_bytes()


def _look_at(folders: list[str]) -> None:
    zoneinfo.reset_tzpath(to=folders)
    zoneinfo.ZoneInfo.clear_cache(only_keys=KEYS)  # those of other tests stay what they are
    zones.forget()
