"""The commands `replicate`, `promote` and `restore`: copies of whole stores."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from perdure import StoreUnavailable
from perdure.cli import plain
from perdure.cli.command_options import Settings
from perdure.cli.failures import CORRUPT, UsageError
from perdure.cli.progress import bar
from perdure.cli.session import refuse_memory
from perdure.cli.terminal import (
    complain,
    flush,
    put,
    say_no_more,
    stderr_console,
    stdout_console,
    text,
)
from perdure.cli.words import count
from perdure.replication import (
    Aside,
    DoneBeforeError,
    Follower,
    Lag,
    Restored,
    Step,
    follow,
    following,
)
from perdure.replication import promote as promote_store
from perdure.replication import restore as restore_store
from perdure.system.flag import Flag
from perdure.system.urls import shown

SAY_EVERY_S = 1.0
SourceArgument = Annotated[
    str, typer.Argument(metavar="SRC", help="The store to copy: a path or URL.")
]
TargetArgument = Annotated[
    str, typer.Argument(metavar="DST", help="The target; it is created if it does not exist.")
]

IncompleteOption = Annotated[
    bool,
    typer.Option(
        "--take-incomplete",
        help="Go on although parts of some agents cannot be taken: "
        "each continues from its last commit that came.",
    ),
]


@contextmanager
def urls_understood(*urls: str | None) -> Iterator[None]:
    """Turns a URL that is unknown, or of no lasting store, into a wrong command line."""
    refuse_memory(*urls)
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from error


def wants_json(ctx: typer.Context) -> bool:
    return ctx.ensure_object(Settings).json


def replicate(
    ctx: typer.Context,
    source: SourceArgument,
    target: TargetArgument,
    keep_on: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep copying as commits come, until Ctrl-C.")
    ] = False,
    resync: Annotated[
        bool,
        typer.Option(
            "--resync",
            help="Take a DST that has agents, e.g. an old primary, or that "
            "followed another store, if its logs are all beginnings of SRC's.",
        ),
    ] = False,
) -> None:
    """Copy a store into another one, of whatever kind, and keep it up to date.

    Each commit is shipped as it is, checked and linked at the other end; a DST with commits of its
    own is refused, naming agent and seq. DST follows SRC from then on, and takes no other writes
    until `perdure promote`. Run it again, also after a crash: it continues.

    With --follow it prints a line for what came, and the lag of DST: in commits, and in seconds
    since the first commit that it lacks.

    An agent whose commits are damaged at SRC, or that DST refuses, is set aside and named; the
    others go on, and it is tried again. While one is set aside, the command ends with code 5.
    """
    json = wants_json(ctx)
    with urls_understood(source, target), following(source, target, resync=resync) as follower:
        commits, messages = _catch_up(follower, quiet=json)
        with _whoever_reads() if keep_on else nullcontext():
            _say(follower, commits, messages, json=json, lines=keep_on)
        if keep_on:
            _keep_on(follower, json=json)
        if follower.aside:
            raise typer.Exit(CORRUPT)


def _catch_up(follower: Follower, *, quiet: bool) -> tuple[int, int]:
    commits = messages = 0
    with bar() as progress:
        progress.begin(f"copying {follower.source.url}", None if quiet else follower.lag().commits)
        while True:
            step = follower.step()
            commits, messages = commits + step.commits, messages + step.messages
            progress.at(commits)
            if not step.more:
                return commits, messages


def _keep_on(follower: Follower, *, json: bool) -> None:
    """Follows until SIGTERM or SIGINT, which end it with code 0: everything that came is in."""
    stop = Flag()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    unsaid = [0, 0]
    said_at = time.monotonic()

    def on_step(step: Step) -> None:
        nonlocal said_at
        unsaid[0] += step.commits
        unsaid[1] += step.messages
        if step.more and time.monotonic() - said_at < SAY_EVERY_S:
            return
        with _whoever_reads():
            _say(follower, unsaid[0], unsaid[1], json=json, lines=True)
        unsaid[:], said_at = [0, 0], time.monotonic()

    def on_trouble(error: StoreUnavailable, again_s: float) -> None:
        words = f"{error.target}: {error.problem} (tried again in {again_s:g} s)"
        with _whoever_reads():
            if json:
                _line("unavailable", problem=str(error), again_s=again_s)
            else:
                stderr_console().print(text(("unavailable ", "bold red"), words))

    follow(follower, stop, on_step, on_trouble)


@contextmanager
def _whoever_reads() -> Iterator[None]:
    """Says once that nobody reads the lines any more, and goes on: the copy is what counts."""
    try:
        yield
    except OSError as error:  # those of the stores are their own
        words = f"the output cannot be written ({error.strerror}): copying goes on without it"
        try:
            complain(words)
        except OSError:
            say_no_more(stderr=True)  # if stdout is the same, its next line shows that
        else:
            say_no_more()


def _say(follower: Follower, commits: int, messages: int, *, json: bool, lines: bool) -> None:
    lag = follower.lag()
    said = {
        "commits": commits,
        "messages": messages,
        "lag": _lag_json(lag),
        "set_aside": aside_json(follower.aside),
    }
    if json and lines:
        _line("shipped", **said)
    elif json:
        plain.put({"source": follower.source.url, "target": follower.target.url, **said})
    else:
        words = f"{count(commits, 'commit')}, {count(messages, 'message')}; "
        if lag.commits:
            words += f"{count(lag.commits, 'commit')} and {lag.seconds:.1f} s behind"
        else:
            words += "up to date"
        time_said = datetime.now().astimezone().strftime("%H:%M:%S ")
        stdout_console().print(text((time_said, "dim"), words))
        flush()
        for one in follower.aside:
            stderr_console().print(_aside_words(one))


def aside_json(found: Sequence[Aside]) -> list[dict[str, Any]]:
    """Returns the set-aside agents as JSON."""
    return [
        {
            "agent": one.agent or None,
            "incarnation": one.incarnation,
            "from_seq": one.seq,
            "problem": one.problem,
            "since": plain.time_json(one.since),
        }
        for one in found
    ]


def _aside_words(one: Aside) -> Text:
    whose = one.agent if one.agent else "the feed of SRC"
    return text(
        ("set aside ", "bold red"),
        (whose, "bold"),
        f" from commit {one.seq} on: ",
        one.problem,
        " (it is tried again)",
    )


def _lag_json(lag: Lag) -> dict[str, Any]:
    return {"commits": lag.commits, "seconds": round(lag.seconds, 6)}


def _line(event: str, **more: Any) -> None:
    said = {"at": datetime.now(UTC).isoformat(), "event": event, **more}
    put(plain.ascii_dumps(said))
    flush()


def promote(
    ctx: typer.Context,
    target: Annotated[str, typer.Argument(metavar="DST", help="The follower.")],
    source: Annotated[
        str | None,
        typer.Option("--source", metavar="URL", help="Where its source is, if it has moved."),
    ] = None,
    lost: Annotated[
        bool,
        typer.Option(
            "--source-is-lost", help="Do without the source: what was not copied yet is lost."
        ),
    ] = False,
    take_incomplete: IncompleteOption = False,
) -> None:
    """Make a follower a store of its own, with fencing tokens above those of its source.

    If the source can be reached it is closed first, so that its writers are told where it went, and
    everything is shipped: nothing acknowledged is lost. Otherwise pass --source-is-lost; if the old
    primary comes back, end its processes before anything else: `perdure replicate` then shows which
    of its agents have commits of their own. While agents are set aside it is refused, naming them,
    unless --take-incomplete says to go on without what is missing.

    It may be killed at any moment: run it again. If everything was done, it says so.
    """
    with urls_understood(target, source):
        try:
            done = promote_store(
                target, source, source_is_lost=lost, take_incomplete=take_incomplete
            )
        except DoneBeforeError:
            _say_promoted_before(shown(target), json=wants_json(ctx))
            return
    target = shown(target)
    latest = done.latest
    if wants_json(ctx):
        plain.put(
            {
                "promoted": target,
                "source": done.source,
                "lossless": done.lossless,
                "commits": done.commits,
                "messages": done.messages,
                "latest": plain.time_json(latest) if latest else None,
                "incomplete": aside_json(done.incomplete),
            }
        )
        return
    console = stdout_console()
    console.print(text(("✓ ", "bold green"), (target, "bold"), " is a store of its own"))
    if done.lossless:
        words = f"nothing is lost: {done.source} was closed, and its last "
        words += f"{count(done.commits, 'commit')} and {count(done.messages, 'message')} shipped"
    else:
        when = latest.isoformat() if latest else "the beginning"
        words = f"what {done.source} acknowledged after {when}, commits and messages, is "
        words += "not here, unless it came with them"
    console.print(text("  ", words))
    for one in done.incomplete:
        console.print(_aside_words(one))


def _say_promoted_before(target: str, *, json: bool) -> None:
    """Reports a promotion by an earlier command that was interrupted at its end: whether it had a
    source is no longer known."""
    if json:
        plain.put(
            {
                "promoted": target,
                "source": None,
                "lossless": None,
                "commits": 0,
                "messages": 0,
                "latest": None,
                "incomplete": [],
            }
        )
        return
    words = " is a store of its own: it was promoted before, and nothing was left to do"
    stdout_console().print(text(("✓ ", "bold green"), (target, "bold"), words))


def restore(
    ctx: typer.Context,
    source: SourceArgument,
    target: TargetArgument,
    at: Annotated[
        str,
        typer.Option(
            "--at", metavar="TIME", help="A moment with its zone: 2026-08-12T14:03:22+02:00, …Z."
        ),
    ],
    take_incomplete: IncompleteOption = False,
) -> None:
    """Fill a new store with all that SRC, a primary or a follower, had committed by a moment.

    Every commit is checked and linked on its way. Agents that were deleted later are alive.
    Messages that a run took out of its inbox later are not in the new inbox: they are in SRC's log.
    If retention removed an agent's state of that moment, --take-incomplete leaves the agent out.

    It may be killed at any moment: run it again. If everything was done, it says so.
    """
    try:
        when = datetime.fromisoformat(at)
    except ValueError:
        raise UsageError(f"{at!r} is not a moment: write 2026-08-12T14:03:22Z") from None
    with urls_understood(source, target), bar() as progress:
        progress.begin(f"restoring {shown(target)}")
        before = False
        try:
            done = restore_store(source, target, when, take_incomplete=take_incomplete)
        except DoneBeforeError:  # by a command that was ended as it ended
            before, done = True, Restored(0, 0)
    source, target = shown(source), shown(target)
    if wants_json(ctx):
        plain.put(
            {
                "source": source,
                "target": target,
                "at": plain.time_json(when),
                "commits": done.commits,
                "messages": done.messages,
                "incomplete": aside_json(done.incomplete),
            }
        )
        return
    words = f"{count(done.commits, 'commit')}, {count(done.messages, 'unread message')} as of {at}"
    if before:
        words = f"was restored before as of {at}, and nothing was left to do"
    stdout_console().print(text(("✓ ", "bold green"), (target, "bold"), f"  {words}"))
    for one in done.incomplete:
        console = stdout_console()
        console.print(text((f"  incomplete: {one.agent}: ", "bold red"), one.problem))
