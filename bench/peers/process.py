"""Our side of the pipe: starting a program in another process, asking it, and killing it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import perdure
from bench.harness import Spent

ROOT = Path(__file__).parents[2]
DBOS_ENVIRONMENT = ROOT / ".venv-peers-dbos"
DBOS_PROGRAM = "bench.peers.dbos_program"
OUR_PROGRAM = "bench.peers.perdure_program"
NOT_SET_UP = "DBOS is not set up here: `make bench-peers` does it"


class NothingOfTheKindError(Exception):
    """The other process has nothing for what it was asked; with what it said."""


class PeerError(Exception):
    """The other process could not do what it was asked; with what it said."""


class Peer:
    """A program of this package, running in a process of its own. Use it in a ``with``."""

    def __init__(
        self,
        python: Path,
        program: str,
        folder: Path,
        *options: str,
        bytecode: Path,
        under: Sequence[str] = (),
        source: Path | None = None,
    ) -> None:
        """Start it; it is not waited for.

        Args:
            bytecode: where compiled modules are kept, so that no start but the first compiles.
            under: a command that runs it, such as a tracer.
            source: the folder of the Perdure that it imports; this process's, where it is the
                same interpreter.
        """
        folders = [str(ROOT)]
        if python == Path(sys.executable):
            folders.append(str(source or Path(perdure.__file__).parents[1]))
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(folders),
            "PYTHONPYCACHEPREFIX": str(bytecode),
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self._process = subprocess.Popen(
            [*under, str(python), "-m", program, str(folder), *options],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._greeting: dict[str, Any] | None = None

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def hello(self) -> dict[str, Any]:
        """What it says of itself once it is ready."""
        if self._greeting is None:
            self._greeting = self._read()
        return self._greeting

    @property
    def pid(self) -> int:
        """The process that works; with a tracer around it, the tracer's."""
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def tell(self, do: str, **arguments: Any) -> None:
        """Ask something without waiting for the answer, also before it is ready.

        Raises:
            PeerError: the process ended.
        """
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            stdin.flush()
        except BrokenPipeError:
            raise PeerError(self._ended()) from None

    def answer(self) -> dict[str, Any]:
        """The answer to what was asked longest ago.

        Raises:
            PeerError: it failed, or the process ended.
        """
        _ = self.hello
        return self._read()

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """As `tell` and `answer`."""
        self.tell(do, **arguments)
        return self.answer()

    def turn(self, do: str, **arguments: Any) -> Callable[[], Spent]:
        """A turn for `interleave_turns`, measured by the other process itself."""

        def take() -> Spent:
            answer = self.ask(do, **arguments)
            return Spent(answer["count"], answer["wall"], answer["cpu"])

        return take

    def _read(self) -> dict[str, Any]:
        stdout = self._process.stdout
        assert stdout is not None
        line = stdout.readline()
        if not line:
            raise PeerError(self._ended())
        answer: dict[str, Any] = json.loads(line)
        if "missing" in answer:
            raise NothingOfTheKindError(answer["missing"])
        if "error" in answer:
            raise PeerError(answer["error"])
        return answer

    def _ended(self) -> str:
        return f"the process ended, with {self._process.wait()}"

    def end(self) -> None:
        """End it, from any thread: whoever waits for its answer hears of that."""
        self._process.kill()

    def kill(self) -> float:
        """End it as `kill -9` does; the moment before that, of the clock all processes share."""
        at = time.monotonic()
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # what it was told last may lie there unread
                    pipe.close()
        return at


def dbos(folder: Path, *options: str, bytecode: Path, under: Sequence[str] = ()) -> Peer | None:
    """DBOS, with its database in that folder; None where it is not set up."""
    if not (DBOS_ENVIRONMENT / "stamp").exists():  # it is written when all is installed
        return None
    python = DBOS_ENVIRONMENT / "bin" / "python"
    return Peer(python, DBOS_PROGRAM, folder, *options, bytecode=bytecode, under=under)


def ours(folder: Path, bytecode: Path, *url: str) -> Peer:
    """Perdure in a process of its own, with its store in that folder, or at that URL."""
    return Peer(Path(sys.executable), OUR_PROGRAM, folder, *url, bytecode=bytecode)
