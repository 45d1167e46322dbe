"""The command `perdure`: its root, and the conversion of errors."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

import perdure
from perdure.cli import failures, terminal
from perdure.cli.command_options import JsonOption, Settings, StoreOption
from perdure.cli.lazy_commands import LazyCommand, LazyGroup

JSON_ASKED = "perdure.json"


COMMANDS = (
    LazyCommand("ls", "perdure.cli.overview:ls", "List the agents."),
    LazyCommand("show", "perdure.cli.overview:show", "One agent at a glance."),
    LazyCommand("log", "perdure.cli.history:log", "Show what happened, newest first."),
    LazyCommand("state", "perdure.cli.inspecting:state", "Show the state, now or at any commit."),
    LazyCommand("diff", "perdure.cli.inspecting:diff", "Show the differences between two states."),
    LazyCommand("branches", "perdure.cli.inspecting:branches", "Branches and checkpoints."),
    LazyCommand("stats", "perdure.cli.overview:stats", "Sizes and growth."),
    LazyCommand("fork", "perdure.cli.moving:fork", "Make a branch at any commit."),
    LazyCommand("checkpoint", "perdure.cli.moving:checkpoint", "Name a recovery point."),
    LazyCommand("undo", "perdure.cli.moving:undo", "Take back the latest change."),
    LazyCommand("redo", "perdure.cli.moving:redo", "Take back the latest undo."),
    LazyCommand("rollback", "perdure.cli.moving:rollback", "Go back to an earlier state."),
    LazyCommand("start", "perdure.cli.starting:start", "Request a run, for a worker."),
    LazyCommand("runs", "perdure.cli.runs:runs", "Runs, and which of them need a person."),
    LazyCommand("tree", "perdure.cli.family:tree", "Which runs started which."),
    LazyCommand(
        "worker", "perdure.cli.worker:worker", "Run what was asked for, and what others left."
    ),
    LazyCommand("questions", "perdure.cli.steering:questions", "What runs ask, of all agents."),
    LazyCommand("why", "perdure.cli.runs:why", "Why is a run not moving?"),
    LazyCommand("answer", "perdure.cli.steering:answer", "Answer what a run asks."),
    LazyCommand("signal", "perdure.cli.steering:signal", "Send a run a signal."),
    LazyCommand("cancel", "perdure.cli.steering:cancel", "End runs."),
    LazyCommand(
        "resume", "perdure.cli.steering:resume", "Let runs that need attention be tried again."
    ),
    LazyCommand("retry", "perdure.cli.steering:retry", "Set a run back to a step."),
    LazyCommand("effects", "perdure.cli.ledger:effects", "Show what an agent did to the world."),
    LazyCommand("settle", "perdure.cli.ledger:settle", "Settle a tool call in doubt."),
    LazyCommand("verify", "perdure.cli.checking:verify", "Prove that no byte of a log changed."),
    LazyCommand(
        "repair", "perdure.cli.checking:repair", "Rebuild page checksums, once all logs are proved."
    ),
    LazyCommand(
        "backup", "perdure.cli.backing_up:backup", "Copy the store while it is in use; verified."
    ),
    LazyCommand("delete", "perdure.cli.deleting:delete", "Delete agents."),
    LazyCommand(
        "trim", "perdure.cli.trimming:trim", "Permanently remove what agents did long ago."
    ),
    LazyCommand(
        "purge", "perdure.cli.purging:purge", "Permanently remove what deleted agents left."
    ),
    LazyCommand(
        "export", "perdure.cli.transfer:export", "Write an agent's history, or a state, to a file."
    ),
    LazyCommand("import", "perdure.cli.transfer:import_", "Take in an agent that export wrote."),
    LazyCommand(
        "replicate",
        "perdure.cli.replicas:replicate",
        "Copy a store, and keep the copy up to date.",
        store=False,
    ),
    LazyCommand(
        "promote",
        "perdure.cli.replicas:promote",
        "Make a follower a store of its own.",
        store=False,
    ),
    LazyCommand(
        "migrate",
        "perdure.cli.migrating:migrate",
        "Move a store's agents to another one while they run.",
        store=False,
    ),
    LazyCommand(
        "restore",
        "perdure.cli.replicas:restore",
        "Fill a new store with what another had at a moment.",
        store=False,
    ),
    LazyCommand(
        "import-langgraph",
        "perdure.cli.import_langgraph:import_langgraph",
        "Bring LangGraph's threads over.",
    ),
)

RUN_COMMANDS = (
    LazyCommand(
        "show",
        "perdure.cli.timeline:show",
        "Its timeline, its place in the code, what it waits for, and its result.",
    ),
    LazyCommand("why", "perdure.cli.runs:why", "Why is it not moving?"),
    LazyCommand("answer", "perdure.cli.steering:answer", "Answer its question."),
    LazyCommand("signal", "perdure.cli.steering:signal", "Send it a signal."),
    LazyCommand("cancel", "perdure.cli.steering:cancel", "End it."),
    LazyCommand("resume", "perdure.cli.steering:resume", "Let it be tried again."),
    LazyCommand("retry", "perdure.cli.steering:retry", "Set it back to a step."),
    LazyCommand(
        "fork", "perdure.cli.steering:fork_run", "Another run on a new branch, from a step of it."
    ),
)


class Root(LazyGroup):
    """Turns every error of a command into words or JSON on stderr, and an exit code."""

    table = COMMANDS

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


class RunRoot(LazyGroup):
    table = RUN_COMMANDS


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


app.add_typer(
    typer.Typer(
        cls=RunRoot, no_args_is_help=True, help="One run: show it, or go on from a step of it."
    ),
    name="run",
)
