"""The process that fuzzes: `python -m tests.fuzz.child MODULE:TARGET --note FILE …`, started by
`watching.py`.

It writes each input down before it tries it, so that whoever watches knows which one ended it: one
that takes too much time is ended by a timer, one that takes too much memory fails to get it.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import mmap
import random
import resource
import signal
import struct
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path

from tests.fuzz.inputs import corpus, pack, unpack
from tests.fuzz.mutating import Parts, mutate
from tests.fuzz.target import Looks, Target, place_of

NOTE_BYTES = 16 << 20
_HEAD = struct.Struct("<QQ")
CPU_S = 10.0
"""Of processor time for one input; most take less than a millisecond, a whole store some 50."""

MEMORY_BYTES = 512 << 20
"""That one input may take beyond what the process has; inputs are of some kilobytes."""

POOL_MAX = 3000


class Note:
    """The input that is being tried, where the watching process sees it."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), NOTE_BYTES)
        self._count = 0

    def write(self, parts: Parts) -> None:
        data = pack(parts)
        self._count += 1
        self._memory[_HEAD.size : _HEAD.size + len(data)] = data
        _HEAD.pack_into(self._memory, 0, self._count, len(data))


def read_note(path: Path) -> tuple[int, Parts]:
    """How many inputs were begun, and the last of them."""
    with path.open("rb") as file:
        count, size = _HEAD.unpack(file.read(_HEAD.size))
        return count, unpack(file.read(size)) if size else []


class Fuzzer:
    """Tries inputs: the committed ones as they are, then damaged ones. One that comes to a new
    end (an error raised in lines where none was raised before) is itself damaged later."""

    def __init__(self, target: Target, note: Note, seed: str) -> None:
        self.target = target
        self._note = note
        self._rng = random.Random(f"{seed} {target.name}")
        self._seen: set[str] = set()
        self._found: set[str] = set()
        self.executions = 0
        self.pool = list((target.inputs or (lambda: corpus(target.name)))().values())

    def run(self, *, executions: int, seconds: float, first: bool = False) -> None:
        """`first`: no further than to the first finding."""
        for parts in [*self.pool]:
            self._try(parts)
        end = time.monotonic() + seconds
        while self.executions < executions and time.monotonic() < end:
            if first and self._found:
                break
            parts = mutate(self._rng.choice(self.pool), self.pool, self._rng)
            if self._try(parts) and len(self.pool) < POOL_MAX:
                self.pool.append(parts)

    def _try(self, parts: Parts) -> bool:
        """Whether it came to an end that is new."""
        self._note.write(parts)
        self.executions += 1
        looks = Looks(*self.target.allowed)
        signal.setitimer(signal.ITIMER_PROF, CPU_S)
        try:
            self.target.feed(parts, looks)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self._tell(error, parts)
            return False
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        fresh = not self._seen.issuperset(looks.reached)
        self._seen.update(looks.reached)
        return fresh

    def _tell(self, error: BaseException, parts: Parts) -> None:
        where = place_of(error)
        if where in self._found:
            return
        self._found.add(where)
        words = "".join(traceback.format_exception(error, limit=-12))
        say(kind="error", where=where, words=words[-8000:], parts=pack(parts).hex())

    @property
    def ends(self) -> int:
        return len(self._seen)


def say(**words: object) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def limit_memory(more: int) -> None:
    """Let this process have so many bytes of address space more than it has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    now = pages * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (now + more, hard))


def find(spec: str) -> Target:
    module, _, name = spec.partition(":")
    found: Target = getattr(import_module(module), name)
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("--note", type=Path, required=True)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--executions", type=int, default=1 << 60)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--first", action="store_true")
    options = parser.parse_args()
    # The stack where it hangs, and then the signal's own way, which is the process' end.
    faulthandler.register(signal.SIGPROF, file=sys.stderr, chain=True)
    target = find(options.target)
    fuzzer = Fuzzer(target, Note(options.note), options.seed)
    if target.prepare is not None:
        target.prepare()
    limit_memory(MEMORY_BYTES)
    fuzzer.run(executions=options.executions, seconds=options.seconds, first=options.first)
    say(kind="end", executions=fuzzer.executions, ends=fuzzer.ends, pool=len(fuzzer.pool))
    return 0


if __name__ == "__main__":
    sys.exit(main())
