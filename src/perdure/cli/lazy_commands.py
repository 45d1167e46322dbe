"""Commands that are loaded when they are used: a command line pays for one of them, not for all."""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperGroup

from perdure.cli.command_options import with_options
from perdure.system.late_imports import loading


class LazyCommand(NamedTuple):
    """A command, and the function that it is.

    Attributes:
        function: as `module:function`.
        store: False: it has options of its own for the stores that it works on.
    """

    name: str
    function: str
    summary: str
    store: bool = True

    def load(self) -> Any:
        """Returns the command as Typer makes it."""
        module, function = self.function.split(":")
        with loading:
            body = getattr(import_module(module), function)
        alone = typer.Typer(
            add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
        )
        alone.command(self.name, short_help=self.summary)(with_options(body, store=self.store))
        return typer.main.get_command(alone)


class LazyGroup(TyperGroup):
    """A group whose commands are those of its `table`, in that order, before its own groups."""

    table: ClassVar[tuple[LazyCommand, ...]] = ()

    def list_commands(self, ctx: Any) -> list[str]:
        named = [command.name for command in self.table]
        return [*named, *(name for name in super().list_commands(ctx) if name not in named)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        names = [command.name for command in self.table]
        # Typer suggests, in place of a name that is none, one of those that it knows.
        wanted = [cmd_name] if cmd_name in names else names
        if cmd_name not in self.commands:
            for command in self.table:
                if command.name in wanted:
                    self.commands[command.name] = command.load()
        return super().get_command(ctx, cmd_name)
