"""The command `start`: requests a run of an agent function, for a worker."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

import typer

from perdure import SchemaError
from perdure.cli import plain
from perdure.cli.failures import UsageError
from perdure.cli.naming import age, value_of
from perdure.cli.session import BranchOption, opened
from perdure.cli.steering import tell_what_is_next, told
from perdure.cli.terminal import stdout_console, text
from perdure.cli.timeline import why_json
from perdure.cli.user_modules import agent_functions
from perdure.model import MAIN
from perdure.system.done_already import DoneAlready

FIRST = "options(initial="
"""In the hint of an error about an agent's first state: what a program would give it by."""

DEADLINE = typer.Option("--deadline", metavar="AGE", help="The time that it may take: 90s, 2h, 7d.")
TIME_LIMIT = typer.Option(
    "--time-limit",
    metavar="AGE",
    help="The same, but counted only while it is executed or waits.",
)


def start(
    ctx: typer.Context,
    function: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:NAME",
            help="An agent function. Modules are looked for in the current directory, too.",
        ),
    ],
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="The agent to run it on.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ARG",
            help="Its arguments, in order: JSON, or plain words; as they are where it takes a str.",
        ),
    ] = None,
    named: Annotated[
        list[str] | None,
        typer.Option("--arg", metavar="NAME=VALUE", help="One by its name; may be repeated."),
    ] = None,
    key: Annotated[
        str, typer.Option("--key", metavar="KEY", help="Names the run: one command, one key.")
    ] = "main",
    queue: Annotated[
        str, typer.Option("--queue", "-q", metavar="NAME", help="For workers of this queue only.")
    ] = "default",
    deadline: Annotated[str | None, DEADLINE] = None,
    time_limit: Annotated[str | None, TIME_LIMIT] = None,
    initial: Annotated[
        str | None,
        typer.Option(
            "--initial",
            metavar="JSON",
            help="The state to create the agent with, if it is not there when the run begins.",
        ),
    ] = None,
    branch: BranchOption = MAIN,
) -> None:
    """Request a run, durably, for a worker to begin. The same request again changes nothing, and
    says how the run is."""
    called = _one_of(function)
    types = _types_of(called)
    args = [
        _argument(f"argument {number}", words, _kind(types, number))
        for number, words in enumerate(arguments or (), 1)
    ]
    kwargs = dict(_named(words, dict(types)) for words in named or ())
    options: dict[str, Any] = {"key": key, "queue": queue, "branch": branch}
    for name, given in (("deadline", deadline), ("time_limit", time_limit)):
        if given is not None:
            options[name] = age(f"--{name.replace('_', '-')}", given)
    if initial is not None:
        options["initial"] = value_of("--initial", initial)
    with DoneAlready() as done, opened(ctx) as session:
        try:
            handle = session.store.options(**options).start(called, agent, *args, **kwargs)
        except SchemaError as error:
            raise _in_words_of_the_shell(error) from error
        except (TypeError, ValueError) as error:
            raise UsageError(f"{function}: {error}") from error
        done.is_now(*told(handle.id, "it is requested"))
        if session.json:
            said: dict[str, Any] = {"run": handle.id, "status": handle.status}
            plain.put({**said, "why": why_json(handle.why())})
            return
        console = stdout_console()
        console.print(text(f"run {handle.id} is ", (handle.status.replace("_", " "), "bold")))
        tell_what_is_next(console, session, handle)


def _in_words_of_the_shell(error: SchemaError) -> SchemaError:
    if FIRST not in error.hint:
        return error
    reason = error.hint.partition("(…) (")[2].removesuffix(")") or error.hint
    hint = f"give one: --initial JSON ({reason})"
    return SchemaError(error.problem, target=error.target, hint=hint)


def _one_of(words: str) -> Callable[..., Any]:
    found = agent_functions(words)
    if len(found) != 1:
        raise UsageError(f"{words} are {len(found)} agent functions; say which: MODULE:NAME")
    return found[0]


def _types_of(function: Callable[..., Any]) -> list[tuple[str, Any]]:
    """Returns the parameters behind the run, by name, with their annotations where these can be
    read."""
    try:
        hints = get_type_hints(function)
    except Exception:  # of the user's module; what they mean is checked by the call
        hints = {}
    try:
        names = list(inspect.signature(function).parameters)[1:]
    except (TypeError, ValueError):
        return []
    return [(name, hints.get(name)) for name in names]


def _kind(types: list[tuple[str, Any]], number: int) -> Any:
    return types[number - 1][1] if number <= len(types) else None


def _named(words: str, types: dict[str, Any]) -> tuple[str, Any]:
    name, is_there, value = words.partition("=")
    if not is_there or not name:
        raise UsageError(f"--arg {words!r}: write NAME=VALUE")
    return name, _argument(f"--arg {name}", value, types.get(name))


def _argument(what: str, words: str, kind: Any) -> Any:
    """Returns an argument as a person types it; text as it is, where that is wanted."""
    return words if kind is str else value_of(what, words)
