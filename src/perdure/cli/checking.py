"""The commands `verify`, which proves that logs are whole and every page can be read, and `repair`,
which restores checksums."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Annotated, Any

import typer

from perdure import Corrupt, NotFound, PerdureError, UnsupportedFormat
from perdure.cli import plain
from perdure.cli.command_options import Settings
from perdure.cli.failures import UsageError, code_of, report
from perdure.cli.progress import Bar, bar
from perdure.cli.session import Session, opened, store_url
from perdure.cli.terminal import stdout_console, text
from perdure.cli.words import count
from perdure.model import Rebuilt, Verified
from perdure.repairing import repair_store
from perdure.system import shell
from perdure.types import AgentInfo

Outcome = Verified | Corrupt | UnsupportedFormat | NotFound
Checked = tuple[str, ...] | Corrupt
"""Of the pages: the tables that could not be read, or what is damaged."""


def verify(
    ctx: typer.Context,
    agent: Annotated[
        str | None, typer.Argument(metavar="AGENT", help="Only its log; default: all.")
    ] = None,
    anchor: Annotated[
        str | None,
        typer.Option("--anchor", metavar="ROOT", help="A root that an earlier verify printed."),
    ] = None,
    pages: Annotated[bool, typer.Option(help="Read and check every page of the store.")] = True,
    heal: Annotated[
        bool, typer.Option("--heal", help="Remove damaged snapshots; the log has their content.")
    ] = False,
) -> None:
    """Prove that no byte of a log changed, and that all views of it agree with it.

    Keep the root that it prints somewhere else: with --anchor, only it shows that an owner of the
    file cut off the log's end and rebuilt it.
    """
    if anchor is not None and agent is None:
        raise UsageError("--anchor is the root of one agent: name it")
    ctx.ensure_object(Settings).proving = True
    with opened(ctx) as session:
        infos = _to_verify(session, agent, latest_only=anchor is not None)
        with bar() as progress:
            checked = _check_pages(session, progress) if pages else None
            outcomes = [(info, _verify(session, info, anchor, progress, heal)) for info in infos]
        faults = [fault for _, fault in outcomes if not isinstance(fault, Verified)]
        if session.json:
            plain.put(_json(session, outcomes, checked))
        else:
            _print(session, outcomes, checked)
        damaged = checked if isinstance(checked, Corrupt) else None
        if damaged is not None or faults:
            first = damaged or faults[0]
            if not session.json:  # the faults were printed already
                raise typer.Exit(code_of(first))
            raise typer.Exit(report(first, as_json=True, say=session.say))


def _to_verify(session: Session, name: str | None, *, latest_only: bool) -> list[AgentInfo]:
    """Returns the agents to verify, also deleted ones that these read as copies of them."""
    if name is None:
        infos = [*session.all_agents()]
    else:
        infos = [session.find(name, deleted_too=True)]
        if latest_only:
            return infos
        infos = session.store.incarnations(name)
    found = {info.no: info for info in infos}
    for info in infos:
        with suppress(Corrupt, UnsupportedFormat, NotFound):  # its own outcome says so
            found |= {one.no: one for one in session.store.origins(info)}
    return [*found.values()]


def repair(
    ctx: typer.Context,
    take_incomplete: Annotated[
        bool,
        typer.Option(
            "--take-incomplete",
            help="Go on although commits are damaged: they are named, and all else is usable "
            "again. The file as it was is kept beside it.",
        ),
    ] = False,
) -> None:
    """Restore the store's page checksums, after another SQLite moved pages without them.

    Every log is proved first, those of deleted agents too; if one fails, nothing is changed, unless
    --take-incomplete says to go on. Damaged snapshots are removed: the log has their content. No
    other process may have the store open.
    """
    settings = ctx.ensure_object(Settings)
    settings.proving = True
    with bar() as progress:
        progress.begin("proving every log, then writing every page")
        found, rebuilt = repair_store(store_url(ctx), take_incomplete=take_incomplete)
    damaged = [one for one in found if one.damages]
    if settings.json:
        agents, whole = [_repaired(one) for one in found], not (damaged or rebuilt.is_cut)
        said = {"ok": True, "complete": whole, "agents": agents, "copy": rebuilt.copy}
        plain.put({**said, "mended": rebuilt.told} if rebuilt.told else said)
    else:
        _print_repaired(found, damaged, rebuilt, settings)


def _repaired(one: Verified) -> dict[str, Any]:
    said: dict[str, Any] = {"agent": one.agent, "commits": one.commits, "root": one.root}
    if one.damages:
        said |= {"proved": bool(one.head), "damages": list(one.damages), "before": one.before}
    return said


def _print_repaired(
    found: list[Verified], damaged: list[Verified], rebuilt: Rebuilt, settings: Settings
) -> None:
    console = stdout_console()
    logs = count(sum(bool(one.head) for one in found), "log")
    healed = sum(one.healed for one in found)
    logs += f" proved, {count(healed, 'damaged snapshot')} removed" if healed else " proved"
    words = f"{logs}, every page written again with its checksum"
    console.print(text(("✓ ", "bold green"), words))
    if rebuilt.told:
        sign = ("✗ ", "bold red") if rebuilt.is_cut else ("✓ ", "bold green")
        console.print(text(sign, rebuilt.told))
    for one in damaged:
        sign = ("? ", "bold yellow") if one.head else ("✗ ", "bold red")
        console.print(text(sign, (one.agent, "bold")))
        for told in one.damages:
            console.print(text(("  " + told, sign[1].removeprefix("bold "))))
        if one.commits and not one.head:  # its log is damaged, not only what waits for it
            command = settings.say(f"`{shell.perdure('verify', one.agent)}`")
            console.print(text(("→ ", "cyan"), f"{command} says how to go back from that"))
    if rebuilt.copy:
        beside = ", its -wal beside it" if os.path.exists(f"{rebuilt.copy}-wal") else ""
        kept = f"the old file is kept as {shell.quote(rebuilt.copy)}{beside}"
        console.print(text(("→ ", "cyan"), kept))


def _check_pages(session: Session, progress: Bar) -> Checked:
    progress.begin("reading every page")
    try:
        return session.store.check_pages()
    except Corrupt as error:
        return error


def _verify(
    session: Session, info: AgentInfo, anchor: str | None, progress: Bar, heal: bool
) -> Outcome:
    progress.begin(f"verifying {info.name}", info.seq)
    try:
        agent = session.store.agent_of(info)
        verified = agent.verify(anchor=anchor, progress=progress.at, heal=heal)
    except (Corrupt, UnsupportedFormat) as error:
        return error
    return lacking(session, info) or verified


def lacking(session: Session, info: AgentInfo) -> NotFound | None:
    """Returns the error of an agent that is a copy, if what it was copied from is not there."""
    with suppress(Corrupt, UnsupportedFormat):  # of the other agent, which has its own outcome
        try:
            session.store.origins(info)
        except NotFound as error:
            return error
    return None


GO_BACK = "go back to commit"
GONE = (
    "it is deleted: restore the store from a copy; or make what copies it anew, from what is whole"
)
MORE = "these do not hold either"


def _parts(
    session: Session, error: PerdureError, info: AgentInfo | None = None
) -> tuple[str, list[str]]:
    """Returns the problem, and what to do about it."""
    problem, *hints = str(error).split("\n  → ")
    if info is not None and info.deleted:  # nothing goes back in it
        hints = [GONE if hint.startswith(GO_BACK) else hint for hint in hints]
    hints = [hint for hint in hints if not hint.startswith(MORE)]  # they are listed
    return problem, [said for hint in hints if (said := session.say(hint))]


def _damages(error: PerdureError) -> list[str]:
    return list(error.damages) if isinstance(error, Corrupt) else []


def _print(
    session: Session,
    outcomes: list[tuple[AgentInfo, Outcome]],
    checked: Checked | None,
) -> None:
    console = stdout_console()
    advice: dict[str, None] = {}
    for info, outcome in outcomes:
        if isinstance(outcome, Verified):
            what = f"{count(outcome.commits, 'commit')}, {count(outcome.snapshots, 'snapshot')}"
            if outcome.trimmed:
                what += f"; {outcome.trimmed:,} emptied by retention, still in the chain"
            if outcome.healed:
                what += f"; {count(outcome.healed, 'damaged snapshot')} removed (a cache)"
            if info.deleted and not outcome.purged:
                what += "; deleted, its log is kept"
            if outcome.purged:
                what += ", purged: only the last commit, the deletion, is left"
            console.print(text(("✓ ", "bold green"), (info.name, "bold"), f"  {what}"))
            console.print(text("  root ", outcome.root))
        elif isinstance(outcome, Corrupt | NotFound):
            console.print(text(("✗ ", "bold red"), (info.name, "bold")))
            problem, hints = _parts(session, outcome, info)
            for one in _damages(outcome) or [problem]:
                console.print(text(("  " + one, "red")))
            advice.update(dict.fromkeys(hints))
    newer = [(info, one) for info, one in outcomes if isinstance(one, UnsupportedFormat)]
    if newer:
        console.print("written by a newer version, and not proved here:")
    for info, outcome in newer:
        problem, hints = _parts(session, outcome)
        console.print(text(("? ", "bold yellow"), (info.name, "bold"), f"  {problem}"))
        advice.update(dict.fromkeys(hints))
    if isinstance(checked, Corrupt):
        console.print(text(("✗ ", "bold red"), "the store's pages"))
        problem, hints = _parts(session, checked)
        console.print(text(("  " + problem, "red")))
        advice.update(dict.fromkeys(hints))
    elif checked is not None:
        which = f" that this user may read; not {', '.join(checked)}" if checked else ""
        console.print(text(("✓ ", "bold green"), f"every page of the store{which}"))
    for hint in advice:
        console.print(text(("→ ", "cyan"), hint))
    good = [outcome for _, outcome in outcomes if isinstance(outcome, Verified)]
    if good and console.is_terminal:
        hint = "keep the roots elsewhere; verify AGENT --anchor ROOT then shows a rebuilt log"
        console.print(text((hint, "dim")))


def _json(
    session: Session,
    outcomes: list[tuple[AgentInfo, Outcome]],
    checked: Checked | None,
) -> dict[str, Any]:
    agents = []
    for info, outcome in outcomes:
        if isinstance(outcome, Verified):
            agents.append(
                {
                    "agent": info.name,
                    "ok": True,
                    "commits": outcome.commits,
                    "snapshots": outcome.snapshots,
                    "root": outcome.root,
                    **({"trimmed": outcome.trimmed} if outcome.trimmed else {}),
                    **({"healed": outcome.healed} if outcome.healed else {}),
                }
            )
        else:
            problem, hints = _parts(session, outcome, info)
            agents.append(
                {
                    "agent": info.name,
                    "ok": False,
                    "error": problem,
                    "hint": "; ".join(hints),
                    "damages": _damages(outcome) or [problem],
                    **({"newer": True} if isinstance(outcome, UnsupportedFormat) else {}),
                    "commit": getattr(outcome, "seq", 0),
                    "before": getattr(outcome, "before", 0),
                }
            )
    whole = not isinstance(checked, Corrupt) and all(agent["ok"] for agent in agents)
    said: dict[str, Any] = {"ok": whole, "agents": agents}
    if isinstance(checked, Corrupt):
        problem, hints = _parts(session, checked)
        said["pages"] = {"ok": False, "error": problem, "hint": "; ".join(hints)}
    elif checked is not None:
        said["pages"] = {"ok": True, **({"unread": [*checked]} if checked else {})}
    return said
