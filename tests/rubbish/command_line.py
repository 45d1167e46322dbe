"""Every command of the command line with wrong words: an exit code of those that the help tells of,
words that can be read, no traceback; and what could not be done wrote nothing.

The commands are found in typer's own registry: one that is added is called, too.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct
from typer.main import get_command
from typer.testing import CliRunner

from perdure.cli.app import app
from tests.cli.lines import subcommands
from tests.rubbish.world import World

WORDS: tuple[str, ...] = (
    "",
    " ",
    "-",
    "--",
    "-n",
    "x",
    "0",
    "1",
    "-1",
    "3",
    "1e999",
    "nan",
    "Infinity",
    "9" * 400,
    "1_000",
    "0x10",
    "\u0663",
    "true",
    "null",
    "None",
    "{",
    "{}",
    "[1]",
    '"',
    '{"a": 1e999}',
    "1d",
    "-5s",
    "1e13d",
    "99999999999d",
    "0s",
    "2024-01-01",
    "2024-01-01T00:00:00",
    "9999-12-31T23:59:59+00:00",
    "0001-01-01T00:00:00+14:00",
    "2024-13-01T00:00:00Z",
    "@retention",
    "main",
    "side",
    "cp",
    "a",
    "gone",
    "a/b~c%",
    "pay#1",
    "really?",
    "\udcff",
    "a\udc80b",
    "\x1b]0;title\x07",
    "\r\n",
    "\u202e",
    "[red]x[/red]",
    "é" * 300,
    "x" * 10_001,
    "[" * 3_000,
    "{}" * 5_000,
    "../x",
    "/",
    "/dev/null",
    "/proc/self/mem",
    "memory://",
    "sqlite://",
    "sqlite:////",
    "postgresql://127.0.0.1:1/x",
    "postgresql://",
    "http://x",
    "file:x?mode=rw",
    "sha256:" + "0" * 64,
    "sha256:x",
    "os:system",
    "os.path:join",
    "tests.rubbish.world:finishing",
    "no_such_module:f",
    ".:x",
    ":",
    "a:b:c",
    "done",
    "needs_attention",
    "live",
    "reuse",
)

RIGHT = {
    "agent": "a",
    "name": "n",
    "a": "1",
    "b": "2",
    "to": "1",
    "run": "asks/asking/main",
    "value": "true",
    "call": "pay#1",
    "step": "pay#1",
    "branch": "b",
    "file": "no-such-file",
    "functions": "tests.rubbish.world:finishing",
    "source": "no-such-store",
    "target": "copy.db",
    "at": "1",
    "prefix": "a",
}

EXCUSED = {
    "worker": "with right words it works until it is stopped: only with words that it refuses",
    "replicate": "with --follow it goes on until it is stopped: without that one",
}

CODES = {0, 2, 3, 4, 5, 6, 7, 8, 9}
"""Exit codes of the help, but for 1, an unexpected error, and 130, an interrupt."""

MAY_BE_CORRUPT = {"import", "import-langgraph"}
"""What is given is read as an export, or a database, and is none."""


class Command(Struct, frozen=True):
    """One command: its words, and what it takes."""

    words: tuple[str, ...]
    params: tuple[Any, ...]

    @property
    def name(self) -> str:
        return " ".join(self.words)


def commands() -> list[Command]:
    return list(_walk(get_command(app), ()))


def _walk(group: Any, before: tuple[str, ...]) -> Iterator[Command]:
    for name, one in subcommands(group).items():
        if hasattr(one, "commands"):
            yield from _walk(one, (*before, name))
        else:
            params = tuple(p for p in one.params if p.name not in ("help", "keep_on", "store"))
            yield Command((*before, name), params)


Case = tuple[Command, dict[str, str]]


def one_wrong() -> Iterator[Case]:
    for command in commands():
        for param in command.params:
            if getattr(param, "is_flag", False):
                continue
            for word in WORDS:
                yield command, {param.name: word}


def several_wrong(rng: random.Random) -> Iterator[Case]:
    every = commands()
    while True:
        command = rng.choice(every)
        chosen = rng.sample(command.params, rng.randint(0, len(command.params)))
        yield command, {param.name: rng.choice(WORDS) for param in chosen}


def line(case: Case, store: str) -> list[str]:
    """The words of a command line: options as `--name=word`, so that any word can be given."""
    command, wrong = case
    options, arguments = [f"--store={store}"], []
    for param in command.params:
        flag = getattr(param, "is_flag", False)
        if param.param_type_name == "argument":
            word = wrong.get(param.name, RIGHT.get(param.name) if param.required else None)
            if word is not None:
                arguments.append(word)
        elif flag and param.name in wrong:
            options.append(param.opts[0])
        elif not flag and (param.name in wrong or param.required):
            name = max(param.opts, key=len)
            options.append(f"{name}={wrong.get(param.name, RIGHT.get(param.name, 'x'))}")
    if command.words[-1] in ("replicate", "promote", "migrate", "restore"):
        options = [word for word in options if not word.startswith("--store=")]
    return [*command.words, *options, "--", *arguments]


def trouble(world: World, case: Case) -> str:
    """What is the matter with what it did; empty: nothing."""
    command, wrong = case
    if command.name == "worker" and wrong.get("functions", RIGHT["functions"]) in _FUNCTIONS:
        wrong = {**wrong, "limit": "-1"}
    words = line((command, wrong), str(Path(world.url.removeprefix("sqlite:///"))))
    before = world.print()
    result: Any = CliRunner().invoke(app, words)
    said = f"{result.stdout}{result.stderr}"
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return f"{result.exception!r:.300} came out"
    if result.exit_code not in CODES:
        return f"exit code {result.exit_code}: {said[-400:]!r}"
    if result.exit_code == 5 and command.name not in MAY_BE_CORRUPT:
        return f"it calls it corrupt: {said[-400:]!r}"
    if "Traceback" in said:
        return f"a traceback: {said[-400:]!r}"
    if strange := _NOT_SHOWN.search(said):
        return f"it prints {strange.group()!r} as it is"
    if result.exit_code != 0 and not result.stderr.strip():
        return "it failed, and says nothing"
    after = world.print()
    if result.exit_code != 0 and after != before and command.words[-1] not in _MANY:
        return f"exit code {result.exit_code}, and something was written: {said[-300:]!r}"
    if after != before:
        world.dirty += 1
        world.read_all(of=before)
    return ""


_FUNCTIONS = {"tests.rubbish.world:finishing"}
_MANY = {"cancel", "resume", "retry", "trim", "purge"}
"""These go from one to the next, and tell at the end of those that could not be."""
_ENDS_IT = {"migrate", "promote", "repair"}
"""What there was is elsewhere then, or may be."""
CHANGES_MAX = 15
_NOT_SHOWN = re.compile("[\x00-\x08\x0b-\x1f\x7f\x80-\x9f\u202a-\u202e\u2066-\u2069]")


class Operator:
    """Types case after case, on worlds in SQLite files of a folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._world: World | None = None
        self.calls = 0

    def close(self) -> None:
        if self._world is not None:
            self._world.close()
            self._world = None

    def run(self, case: Case) -> str:
        """What is the matter with it, with its command line; empty: nothing."""
        self.calls += 1
        if self._world is None:
            self._world = World(f"sqlite:///{self._folder}/typed-{self.calls}.db")
        world = self._world
        try:
            problem = trouble(world, case)
            if not problem and world.dirty >= CHANGES_MAX:
                world.use_all()
        except Exception as error:
            problem = f"cannot be read any more: {error!r:.300}"
        if problem or world.dirty >= CHANGES_MAX or case[0].name in _ENDS_IT:
            self.close()
        return f"{shown(case)}: {problem}" if problem else ""


def shown(case: Case) -> str:
    words = {
        name: word if len(word) <= 60 else f"{word[:40]}… ({len(word)})"
        for name, word in case[1].items()
    }
    return f"perdure {case[0].name} {words!r}"
