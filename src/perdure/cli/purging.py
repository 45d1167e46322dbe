"""The command `purge`: removes the logs of deleted agents, and frees their room."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.cli import plain
from perdure.cli.progress import bar
from perdure.cli.session import ShrinkOption, opened
from perdure.cli.session import shrink as shrink_store
from perdure.cli.terminal import stdout_console, text
from perdure.cli.words import count

OTHERS = (
    "  an agent that was deleted without purge keeps its log, for an audit: `perdure purge AGENT` "
    "removes it"
)


def purge(
    ctx: typer.Context,
    agent: Annotated[
        str | None,
        typer.Argument(
            metavar="AGENT",
            help="Only this deleted one. Default: all that were deleted to be purged.",
        ),
    ] = None,
    shrink: ShrinkOption = False,
) -> None:
    """Permanently remove what deleted agents left, except the deletion itself.

    Without AGENT, it removes agents that were deleted to be purged (`store.delete(…, purge=True)`,
    LangGraph's threads); others keep their log, for an audit, until they are named. Logs that
    living copies read are kept. It may be killed at any moment: run it again. The store reuses the
    room. Stores that follow this one do the same, at their next look; backups and exports do not.
    """
    with opened(ctx) as session:
        with bar() as progress:
            progress.begin("removing what deleted agents left")
            done = session.store.purge(agent)
            if shrink:
                progress.begin("rewriting the store")
                shrink_store(session, f"{count(len(done.agents), 'log')} purged")
        if session.json:
            plain.put(
                {
                    "purged": [
                        {"agent": one.name, "incarnation": one.incarnation} for one in done.agents
                    ],
                    "kept": [
                        {"agent": one.name, "incarnation": one.incarnation} for one in done.kept
                    ],
                    "shrunk": shrink,
                }
            )
            return
        console = stdout_console()
        purged = f"{count(len(done.agents), 'log')} purged"
        words = purged if done.agents else "nothing was deleted to be purged"
        console.print(text(("✓ ", "bold green"), words))
        if agent is None:
            console.print(text((OTHERS, "dim")))
        for one in done.kept:
            console.print(text(("  kept ", "yellow"), one.name, ": a living copy reads it"))
