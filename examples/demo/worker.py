"""What the demonstration kills: `migration.py` as it is, with a witness beside its tool."""

from __future__ import annotations

import functools
import os
import sys
import time
from pathlib import Path

import perdure
from examples import migration
from examples.demo.ledger import Ledger, Line


def witness(ledger: Ledger, pause_s: float) -> None:
    """Put a ledger line before and behind each physical call of `copy_batch`, and perhaps a pause
    into it, so that a small job is not done before it can be killed."""
    copy_batch = migration.copy_batch.__wrapped__  # type: ignore[attr-defined]

    @perdure.tool(on_crash="retry")
    @functools.wraps(copy_batch)
    def witnessed(source: str, dest: str, files: list[str]) -> migration.Copied:
        key, epoch = perdure.idempotency_key(), perdure.fencing_token()
        ledger.append(Line(key, epoch, os.getpid(), returned=False))
        time.sleep(pause_s)
        copied: migration.Copied = copy_batch(source, dest, files)
        ledger.append(Line(key, epoch, os.getpid(), returned=True))
        return copied

    migration.copy_batch = witnessed


if __name__ == "__main__":
    witness(Ledger(Path(sys.argv[1])), float(sys.argv[2]))
    migration.main(sys.argv[3:])
