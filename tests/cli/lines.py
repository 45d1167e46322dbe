"""Command lines for everything that `perdure` has, made from its own registry: a command or an
option that comes new is there too, or whoever runs these is told that a word for it is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import typer

from perdure.cli.app import COMMANDS, app

ENDLESS = {("worker",), ("replicate", "--follow"), ("runs", "--watch")}
"""Until a signal ends them: not among the lines."""

GLOBAL = ("store", "as_json")
"""Options that every command has."""


def subcommands(command: Any) -> dict[str, Any]:
    """The commands of a group, by name; each is loaded when it is asked for."""
    context = typer.Context(command)
    return {name: command.get_command(context, name) for name in command.list_commands(context)}


def commands() -> dict[tuple[str, ...], list[Any]]:
    """Each command, by its words, and its parameters."""
    found: dict[tuple[str, ...], list[Any]] = {}

    def walk(command: Any, words: tuple[str, ...]) -> None:
        if not hasattr(command, "commands"):
            found[words] = command.params
            return
        for name, sub in subcommands(command).items():
            walk(sub, (*words, name))

    walk(typer.main.get_command(app), ())
    assert len(found) > len(COMMANDS)  # and those of `run`
    return found


def lines(words: Mapping[str, str], *, options: bool = True) -> Iterator[list[str]]:
    """Each command with what it needs, and, with `options`, once more with each that it has.

    Args:
        words: by the name of a parameter, or of a command and a parameter ("import source").

    Raises:
        KeyError: naming a parameter that has none.
    """
    for command, params in commands().items():
        if command in ENDLESS:
            continue
        needed = [one for one in params if one.required]
        yield _line(command, needed, words)
        for one in params if options else []:
            known = one in needed or one.name in GLOBAL or (*command, one.opts[0]) in ENDLESS
            if not known:
                yield _line(command, [*needed, one], words)


def _line(command: tuple[str, ...], params: list[Any], words: Mapping[str, str]) -> list[str]:
    options: list[str] = []
    arguments: list[str] = []
    for one in params:
        if one.param_type_name == "argument":
            arguments.append(_word(command, one.name, words))
        elif one.is_flag:
            options.append(one.opts[0])
        elif one.opts[0].startswith("--"):
            options.append(f"{one.opts[0]}={_word(command, one.name, words)}")
        else:
            options += [one.opts[0], _word(command, one.name, words)]
    return [*command, *options, "--", *arguments]


def _word(command: tuple[str, ...], name: str, words: Mapping[str, str]) -> str:
    own = f"{' '.join(command)} {name}"
    return words[own] if own in words else words[name]
