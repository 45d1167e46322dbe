"""The command `migrate`: moves agents to another store while they run."""

from __future__ import annotations

import typer

from perdure.cli import plain
from perdure.cli.progress import bar
from perdure.cli.replicas import (
    IncompleteOption,
    SourceArgument,
    TargetArgument,
    urls_understood,
    wants_json,
)
from perdure.cli.terminal import stdout_console, text
from perdure.cli.words import count
from perdure.replication import DoneBeforeError, Moved
from perdure.replication import migrate as migrate_store
from perdure.system.urls import shown


def migrate(
    ctx: typer.Context,
    source: SourceArgument,
    target: TargetArgument,
    take_incomplete: IncompleteOption = False,
) -> None:
    """Move all agents of SRC to DST, with every commit id as it was, while they run.

    Their data is copied first. Then each agent has a pause, usually far under a second, in which
    neither store takes its commits; its inbox comes along, and later messages to it at SRC are
    forwarded. In the end SRC is closed: it can be read, and writers are told where it went. Start
    workers on DST when you start this; end those on SRC when it is finished. A tool call that was
    under way on SRC is in doubt on DST, as after a crash.

    It may be killed at any moment: run it again, and it continues. An agent that DST cannot take
    completely stays at SRC, and is named; --take-incomplete moves it as far as it goes.
    """
    copied = 0
    arrived: list[Moved] = []
    with urls_understood(source, target), bar() as progress:
        progress.begin(f"copying {shown(source)}")

        def on_step(commits: int) -> None:
            nonlocal copied
            copied += commits
            progress.at(copied)

        def on_moved(moved: Moved) -> None:
            arrived.append(moved)
            progress.begin(f"moved {moved.agent}")

        before = False
        try:
            migrate_store(source, target, on_moved, on_step, take_incomplete=take_incomplete)
        except DoneBeforeError:  # of a command that was ended as it ended
            before = True
    source, target = shown(source), shown(target)
    longest_s = max((moved.pause_s for moved in arrived), default=0.0)
    if wants_json(ctx):
        plain.put(
            {
                "source": source,
                "target": target,
                "commits_copied": copied,
                "longest_pause_s": round(longest_s, 6),
                "agents": [
                    {
                        "agent": moved.agent,
                        "incarnation": moved.incarnation,
                        "pause_s": round(moved.pause_s, 6),
                    }
                    for moved in arrived
                ],
            }
        )
        return
    console = stdout_console()
    words = f"{count(len(arrived), 'agent')} moved; the longest pause was {longest_s:.3f} s"
    if before:
        words = "all was moved there before; nothing was left to do"
    console.print(text(("✓ ", "bold green"), (target, "bold"), f"  {words}"))
    console.print(text("  ", f"{source} is closed; its log can be read there"))
