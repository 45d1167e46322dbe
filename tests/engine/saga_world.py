"""Tools that book and pay, what undoes them, and the books of the world in which they act."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import perdure

world: list[Path] = []
"""The file with what happened outside, in order, a line for each: what, and the call's key."""


def begin_world(folder: Path) -> None:
    world[:] = [folder / "world"]


def events() -> list[list[str]]:
    text = world[0].read_text() if world[0].exists() else ""
    return [line.split("|") for line in text.splitlines()]


def happened() -> list[str]:
    return [what for what, _ in events()]


def find(*args: Any, **kwargs: Any) -> Any:
    key = perdure.idempotency_key()
    return next((what for what, known in events() if known == key), perdure.NOT_DONE)


def note(what: str) -> str:
    with world[0].open("a") as file:
        file.write(f"{what}|{perdure.idempotency_key()}\n")
    return what


@perdure.tool(on_crash="probe", probe=find)
def cancel_room(booking: str, guest: str) -> str:
    assert booking == f"book {guest}"
    return note(f"cancel {guest}")


@perdure.tool(on_crash="probe", probe=find, compensate=cancel_room)
def book_room(guest: str, nights: int = 1) -> str:
    return note(f"book {guest}")


@perdure.tool(on_crash="probe", probe=find)
def refund(payment: str) -> str:
    return note("refund")


@perdure.tool(on_crash="probe", probe=find, compensate=refund)
def pay(cents: int) -> str:
    return note(f"pay {cents}")
