"""Programs that tests start as processes of their own."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import perdure


def note(folder: str, line: str) -> None:
    descriptor = os.open(Path(folder) / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


def moving(folder: str, batch: int) -> int:
    """Moves a batch; while the test holds it, it is in the middle of batch 2."""
    if batch == 2 and (Path(folder) / "hold").exists():
        (Path(folder) / f"inside-{os.getpid()}").touch()
        while (Path(folder) / "hold").exists():
            time.sleep(0.01)
    note(folder, f"{batch} {perdure.idempotency_key()}")
    return batch * 100


retry_move = perdure.tool(on_crash="retry", name="move")(moving)
ask_move = perdure.tool(on_crash="ask", name="move")(moving)


@perdure.agent(dict)
def migration(run: perdure.Run[dict], folder: str, policy: str) -> list[int]:
    move = {"retry": retry_move, "ask": ask_move}[policy]
    moved = []
    for batch in (1, 2, 3):
        moved.append(move(folder, batch))
        with run.edit(f"batch {batch} is done") as draft:
            draft["next"] = batch + 1
    return moved


def execute(folder: str, policy: str, ttl_s: float, answers: Any) -> None:
    with perdure.open(Path(folder) / "m.db", lease_ttl=timedelta(seconds=ttl_s)) as store:
        try:
            answers.send(("result", store.run(migration, "m", folder, policy)))
        except perdure.PerdureError as error:
            answers.send((type(error).__name__, str(error)))
