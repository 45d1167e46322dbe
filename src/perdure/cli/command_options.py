"""The options that all commands have, and what they note. Nothing here needs a store."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any

import typer
from msgspec import Struct

from perdure.cli.failures import UsageError, in_the_shell

VERIFY_ADVICE = re.compile(
    r"(; )?run `perdure verify`(, which [^;]*| to see how far the damage goes)?(, and |; |$)"
)


class Settings(Struct):
    """The options that may stand before or after the command's name."""

    store: str | None = None
    shown: bool = False
    json: bool = False
    proving: bool = False
    """True for the commands that prove logs: they do not advise to run `verify`."""

    def say(self, words: str) -> str:
        """Returns words of the library, with commands that can be pasted for this store."""
        if self.proving:
            words = VERIFY_ADVICE.sub("", words)
        return in_the_shell(words, self.store, shown=self.shown)


def _note_store(ctx: typer.Context, value: str | None) -> str | None:
    if value == "":
        raise UsageError("--store is empty: is a variable unset?")
    if value:
        ctx.ensure_object(Settings).store = value
        ctx.ensure_object(Settings).shown = True
    return value


def _note_json(ctx: typer.Context, value: bool) -> bool:
    if value:
        ctx.ensure_object(Settings).json = True
    return value


StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        "-s",
        metavar="URL",
        callback=_note_store,
        help="The store: a path, sqlite:///path or postgresql://…. Default: $PERDURE_STORE.",
    ),
]
JsonOption = Annotated[
    bool,
    typer.Option(
        "--json", callback=_note_json, help="Print JSON on stdout, and nothing else there."
    ),
]


def with_options(command: Callable[..., None], *, store: bool = True) -> Callable[..., None]:
    """Returns a command that takes --json and, with `store`, --store behind its own options. What
    they say is noted in `Settings`: the command itself is not given it."""
    common = {"store": (StoreOption, None), "as_json": (JsonOption, False)}
    added = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=option)
        for name, (option, default) in common.items()
        if store or name != "store"
    ]

    @wraps(command)
    def called(*, store: str | None = None, as_json: bool = False, **given: Any) -> None:
        command(**given)

    own = signature(command, eval_str=True)
    called.__signature__ = own.replace(parameters=[*own.parameters.values(), *added])  # type: ignore[attr-defined]
    return called
