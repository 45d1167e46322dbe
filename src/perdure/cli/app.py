"""The command `perdure`: its root, and the conversion of errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import perdure
from perdure.cli import (
    checking,
    failures,
    history,
    import_langgraph,
    inspecting,
    ledger,
    migrating,
    moving,
    overview,
    purging,
    replicas,
    runs,
    steering,
    terminal,
    timeline,
    transfer,
    trimming,
    worker,
)
from perdure.cli.command_options import JsonOption, Settings, StoreOption, with_options

JSON_ASKED = "perdure.json"


class Root(TyperGroup):
    """Turns every error of a command into words or JSON on stderr, and an exit code."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[JSON_ASKED] = failures.asks_for_json(args)
        try:
            return super().parse_args(ctx, args)
        except failures.UsageError as error:
            raise _left(ctx, error) from None

    def main(self, *args: Any, **more: Any) -> Any:
        for name in ("stdin", "stdout", "stderr"):
            if getattr(sys, name) is None:  # closed by whoever called: `perdure ls >&-`
                setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115
        return super().main(*args, **more)

    def invoke(self, ctx: Any) -> Any:
        try:
            made = super().invoke(ctx)
            terminal.flush()
            return made
        except typer.Exit:
            raise
        except (KeyboardInterrupt, typer.Abort):  # the latter: at a question
            raise typer.Exit(failures.INTERRUPTED) from None
        except BrokenPipeError:  # e.g. `perdure log … | head`
            terminal.say_no_more()
            raise typer.Exit(failures.PIPE_CLOSED) from None
        except OSError as error:  # those of the store are its own: it is where words go
            if error.filename is not None:
                raise _left(ctx, error) from None
            terminal.say_no_more()
            words = f"the output cannot be written: {error.strerror}"
            raise _left(ctx, perdure.PerdureError(words)) from None
        except Exception as error:
            raise _left(ctx, error) from None


def _left(ctx: Any, error: Exception) -> Exception:
    """Returns what leaves the command for an error that it reported; requested help unchanged."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return error
    as_json = ctx.meta[JSON_ASKED]
    where = getattr(error, "ctx", None)
    if where is not None and not as_json:
        try_help = f"Try '{where.command_path} --help' for help."
        terminal.complain(f"{where.get_usage()}\n{try_help}\n")
    say = ctx.ensure_object(Settings).say
    return typer.Exit(failures.report(error, as_json=as_json, say=say))


app = typer.Typer(
    cls=Root,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog=failures.HELP,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        terminal.put(f"perdure {perdure.__version__}")
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    store: StoreOption = None,
    as_json: JsonOption = False,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version.")
    ] = False,
) -> None:
    """Look into a store of agents, go back in their history, and settle what needs a person.

    It may be used while agents are at work: looking never blocks them, and nothing is created by
    a mistyped name. WHERE, in all commands, is a commit's seq, the name of a checkpoint or branch,
    or a moment with its zone (2026-08-12T14:03:22+02:00, …Z).
    """
    settings = ctx.ensure_object(Settings)
    settings.store = settings.store or os.environ.get("PERDURE_STORE")


COMMANDS: tuple[tuple[str, Callable[..., Any], str], ...] = (
    ("ls", overview.ls, "List the agents."),
    ("show", overview.show, "One agent at a glance."),
    ("log", history.log, "Show what happened, newest first."),
    ("state", inspecting.state, "Show the state, now or at any commit."),
    ("diff", inspecting.diff, "Show the differences between two states."),
    ("branches", inspecting.branches, "Branches and checkpoints."),
    ("stats", overview.stats, "Sizes and growth."),
    ("fork", moving.fork, "Make a branch at any commit."),
    ("checkpoint", moving.checkpoint, "Name a recovery point."),
    ("undo", moving.undo, "Take back the latest change."),
    ("redo", moving.redo, "Take back the latest undo."),
    ("rollback", moving.rollback, "Go back to an earlier state."),
    ("runs", runs.runs, "Runs, and which of them need a person."),
    ("worker", worker.worker, "Run what was asked for, and what others left."),
    ("why", runs.why, "Why is a run not moving?"),
    ("answer", steering.answer, "Answer what a run asks."),
    ("signal", steering.signal, "Send a run a signal."),
    ("cancel", steering.cancel, "End runs."),
    ("resume", steering.resume, "Let runs that need attention be tried again."),
    ("retry", steering.retry, "Set a run back to a step."),
    ("effects", ledger.effects, "Show what an agent did to the world."),
    ("settle", ledger.settle, "Settle a tool call in doubt."),
    ("verify", checking.verify, "Prove that no byte of a log changed."),
    ("repair", checking.repair, "Rebuild page checksums, once all logs are proved."),
    ("trim", trimming.trim, "Permanently remove what agents did long ago."),
    ("purge", purging.purge, "Permanently remove what deleted agents left."),
    ("export", transfer.export, "Write an agent's history, or a state, to a file."),
    ("import", transfer.import_, "Take in an agent that export wrote."),
    ("replicate", replicas.replicate, "Copy a store, and keep the copy up to date."),
    ("promote", replicas.promote, "Make a follower a store of its own."),
    ("migrate", migrating.migrate, "Move a store's agents to another one while they run."),
    ("restore", replicas.restore, "Fill a new store with what another had at a moment."),
    ("import-langgraph", import_langgraph.import_langgraph, "Bring LangGraph's threads over."),
)
OF_TWO_STORES = ("replicate", "promote", "migrate", "restore")
for name, function, summary in COMMANDS:
    options = with_options(function, store=name not in OF_TWO_STORES)
    app.command(name, short_help=summary)(options)

run_app = typer.Typer(no_args_is_help=True, help="One run: show it, or go on from a step of it.")
RUN_COMMANDS: tuple[tuple[str, Callable[..., Any], str], ...] = (
    (
        "show",
        timeline.show,
        "Its timeline, its place in the code, what it waits for, and its result.",
    ),
    ("why", runs.why, "Why is it not moving?"),
    ("answer", steering.answer, "Answer its question."),
    ("signal", steering.signal, "Send it a signal."),
    ("cancel", steering.cancel, "End it."),
    ("resume", steering.resume, "Let it be tried again."),
    ("retry", steering.retry, "Set it back to a step."),
    ("fork", steering.fork_run, "Another run on a new branch, from a step of it."),
)
for name, function, summary in RUN_COMMANDS:
    run_app.command(name, short_help=summary)(with_options(function))
app.add_typer(run_app, name="run")
