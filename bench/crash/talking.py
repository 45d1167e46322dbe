"""A process that is told, and tells, one JSON object a line; heard with a limit of time."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

ANSWER_S = 300.0
"""For a machine that is busy with other things: who ended is heard of at once."""

END_S = 10.0


class Silent(Exception):
    """It ended, or said nothing for too long."""


class Talking:
    """Use it in a ``with``: the process ends with it."""

    def __init__(
        self, command: Sequence[str | Path], log: Path, environment: Mapping[str, str]
    ) -> None:
        """Start it; what it says on stderr goes to the end of `log`."""
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=dict(environment),
            )
        self._said: queue.Queue[str] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __enter__(self) -> Talking:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join()
        self._process.stdout.close()

    def tell(self, **what: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def hear(self, timeout_s: float = ANSWER_S) -> dict[str, Any]:
        """The next thing that it says.

        Raises:
            Silent: it ended, or says nothing.
        """
        try:
            line = self._said.get(timeout=timeout_s)
        except queue.Empty:
            raise Silent(f"nothing was heard for {timeout_s} s") from None
        if not line:
            raise Silent(f"the process ended, with {self._process.wait()}")
        heard: dict[str, Any] = json.loads(line)
        return heard

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.put(line)
        self._said.put("")
