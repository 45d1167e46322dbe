"""The command `run show`: one run with its timeline, its place, and what it waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer
from rich.text import Text

from perdure import MISSING
from perdure.cli import plain
from perdure.cli.attention import (
    effect_style,
    effects_noting,
    executor_of,
    print_ways,
    print_ways_out,
    run_status,
)
from perdure.cli.ledger import WholeOption, effect_json
from perdure.cli.named_rows import NamedRows
from perdure.cli.naming import RunArgument, find_run
from perdure.cli.overview import Unreadable, tell_of
from perdure.cli.session import NUMBER_MAX, Session, opened
from perdure.cli.terminal import Screen, stdout_console, table, text
from perdure.cli.words import REMOVED, ago, cut, full, moment, short, span
from perdure.model import UNFINISHED, UNTIL
from perdure.types import Explanation, GuardReport, Message, Question, RunInfo, RunReport, WayOut

Event = Any  # the library's own type has no public name
EVENTS = 40
OTHERS = 10
CALLS = ("step", "tool", "edit", "move", "wait")
MARK_STYLES = {
    "stopped": "bold red",
    "changed": "yellow",
    "cancelled": "dim",
    "set back": "magenta",
    "turn": "cyan",
    "refused": "red",
}


def show(
    ctx: typer.Context,
    run: RunArgument,
    number: Annotated[
        int,
        typer.Option(
            "-n",
            "--number",
            min=0,
            max=NUMBER_MAX,
            help="Number of the timeline's last lines; 0: all.",
        ),
    ] = EVENTS,
    whole: WholeOption = False,
) -> None:
    """Show one run: its timeline of steps, tool calls and waits; its place; what it waits for and
    asks; its result; and if it stands still, the way out."""
    with opened(ctx) as session:
        info = find_run(session, run)
        handle = session.store.handle(info.id)
        known = handle.report()
        executor = executor_of(session, known.info)
        damage: list[Unreadable] = []
        if session.json:
            found = effects_noting(session, info.id, damage)
            effects = [effect_json(effect, executor) for effect in found]
            damaged = {"damaged": str(damage[0])} if damage else {}
            plain.put({**_report_json(known, executor), "effects": effects, **damaged})
            return
        if info.status not in UNFINISHED and not known.events:
            effects_noting(session, info.id, damage)  # of one that goes on, its `why` says it
        console = stdout_console()
        _print_head(console, session, known, executor)
        _print_timeline(console, known, executor, number, whole=whole, lost=bool(damage))
        _print_places(console, known, executor)
        _print_questions(console, session, known.questions)
        _print_inbox(console, known.inbox)
        _print_children(console, session, known.children)
        if known.info.status == "waiting":
            console.print()
            print_ways(console, session, [way for way in known.why.ways if not _answers(way)])
        else:
            print_ways_out(console, session, [known.info])
        tell_of(session, damage)


def _answers(way: WayOut) -> bool:
    return way.command[:1] == ("answer",)  # said along with the question


# -- the head -------------------------------------------------------------------------------


def _print_head(console: Screen, session: Session, known: RunReport, executor: str | None) -> None:
    run = known.info
    rows = table("", "")
    rows.show_header = False

    def row(name: str, words: str | Text) -> None:
        rows.add_row(text((name, "dim")), words)

    row("run", text((run.id, "bold")))
    row("status", run_status(session, run))
    if run.status in UNFINISHED:
        for line in session.say(known.why.why).split("\n")[:1]:
            row("why", line)
    if executor:
        row("executor", executor)
    row("agent", f"{run.agent}, branch {run.branch}")
    version = f", version {run.version}" if run.version else ""
    row("function", f"{run.function}{version}, key {run.key}")
    if run.queue != "default":
        row("queue", run.queue)
    if run.parent:
        row("parent", run.parent)
    if run.started_at_micros:
        began = run.started_at
        asked = "" if run.started else ", asked for; it has not begun"
        row("begun", f"{moment(began)} ({ago(began)}){asked}")
    if run.turn > 1:
        row("turn", f"{run.turn}")
    if known.why.deadline is not None:
        row("deadline", moment(known.why.deadline))
    if known.why.time_limit is not None and known.why.time_left is not None:
        left = span(known.why.time_left)
        row("time limit", f"{left} left of {span(known.why.time_limit)}")
    if run.status not in UNFINISHED and run.changed_at_micros:
        ended = run.changed_at
        row("ended", f"{moment(ended)}, after {span(ended - run.started_at)}")
    if run.status == "done":
        row("result", full(run.result))
    elif run.problem and run.status in ("failed", "cancelled"):
        row("why", run.problem)
    if known.guards is not None and known.guards.changed and run.status != "needs_attention":
        what = ", ".join(change.what for change in known.guards.changed)
        row("changed", f"{what} ({ago(known.guards.at)})")
    if known.notes:
        note = known.notes[-1]
        share = f" {note.fraction:.0%}" if note.fraction is not None else ""
        row("progress", f"{note.text}{share} ({ago(note.at)})")
    console.print(rows)


# -- the timeline ---------------------------------------------------------------------------


def _print_timeline(
    console: Screen,
    known: RunReport,
    executor: str | None,
    number: int,
    *,
    whole: bool,
    lost: bool,
) -> None:
    events = known.events
    console.print()
    if not events:
        words = "nothing is recorded of it yet" if not lost else "what is recorded cannot be read"
        console.print(text((words, "dim")))
        return
    whole = whole or not console.is_terminal  # in a pipe nothing is cut
    shown = events[-number:] if number else events
    if len(shown) < len(events):
        left = len(events) - len(shown)
        console.print(text((f"… {left:,} earlier lines; -n 0 shows all", "dim")))
    rows = table("when", "took", "what", "", right=("took",))
    day = ""
    for event in shown:
        at = event.at.astimezone()
        if (date := at.strftime("%Y-%m-%d")) != day:
            rows.add_row(text((date, "dim")), "", "", "")
            day = date
        what, came = _what(event, whole), _came_of(event, executor, whole)
        if not whole:
            width = max(console.width - 24, 40)
            came.truncate(max(width // 2, width - len(what) - 2), overflow="ellipsis")
            what.truncate(max(width - len(came) - 2, 16), overflow="ellipsis")
        rows.add_row(text((at.strftime("%H:%M:%S"), "dim")), _took(event), what, came)
    console.print(rows)


def _took(event: Event) -> str:
    if event.kind not in CALLS:
        return ""
    if event.ended is None:
        return "…"
    passed: timedelta = event.ended - event.at
    return span(passed) if event.exact else f"≤ {span(passed)}"


def _what(event: Event, whole: bool) -> Text:
    words = event.words if whole else cut(event.words, 120)
    if event.kind in ("step", "tool"):
        style = "bold" if event.kind == "tool" else ""
        return text((event.place, style), f"({words})")
    if event.kind in ("edit", "move"):
        return text((event.place, "green" if event.kind == "edit" else "magenta"))
    if event.kind == "wait":
        verb = "sleeps " if words.startswith(UNTIL) else "waits for "
        return text((verb, "yellow"), words, (f"  {event.place}", "dim"))
    if event.kind in ("value", "patch", "removed"):
        return text((event.place, "dim"))
    style = MARK_STYLES.get(event.kind, "cyan")
    if event.kind == "started":
        return text((f"{event.kind}", style), f"({words})")
    place = f" {event.place}" if event.place else ""
    first = event.words.partition("\n")[0] if not whole else words
    return text((f"{event.kind}{place}", style), f" {first}" if first else "")


def _came_of(event: Event, executor: str | None, whole: bool) -> Text:
    """Returns a call's result, or that it is unknown."""
    say = full if whole else short
    tries = f", attempt {event.attempts}" if event.attempts > 1 else ""
    if event.kind == "removed":
        return text((REMOVED, "dim"))
    if event.kind not in (*CALLS, "value", "patch", "finished"):
        return text()
    saved = f", saved {say(event.saved)}" if event.saved is not None else ""
    if event.state == "open" and event.kind == "tool":
        words = "under way" if executor else "in doubt"
        return text((words, effect_style(words)), tries, saved)
    if event.state == "open":
        return text(("open", "yellow"), tries, saved)
    if event.state in ("to be tried again", "not undone"):
        when = f", again at {_clock(event.again_at)}" if event.again_at is not None else ""
        return text((f"attempt {event.attempts} failed", "yellow"), f"{when}: {_error(event)}")
    if event.state == "failed":
        return text(("raised ", "red"), _error(event), tries)
    by = event.by if event.by not in ("", "call") else ""
    who = f" by {event.who or by}" if event.who or by else ""
    if event.state == "cancelled" and event.question and event.value is not None:
        return text(("cancelled", "yellow"), f", unheard: {say(event.value)}", (who, "magenta"))
    if event.state != "done":
        return text((event.state, "yellow"), tries)
    if event.kind in ("edit", "move", "patch") or (event.kind == "wait" and event.value is None):
        return text("came" if event.kind == "wait" else "", (who, "magenta"))
    return text(f"→ {say(event.value)}", (who, "magenta"), tries)


def _error(event: Event) -> str:
    error: Mapping[str, Any] = event.error or {}
    kind = str(error.get("type", "")).rpartition(":")[2].rpartition(".")[2]
    return f"{kind}: {error.get('text', '')}"


def _clock(at: datetime) -> str:
    return at.astimezone().strftime("%H:%M:%S")


# -- what stands around it ------------------------------------------------------------------


def _print_places(console: Screen, known: RunReport, executor: str | None) -> None:
    """Prints where it is in the code, if that is more than the timeline's last line."""
    if known.info.status not in UNFINISHED or len(known.places) < 2:
        return
    console.print()
    rows = table("task", "is at", "")
    for path, event in list(known.places.items())[:OTHERS]:
        task = text((path.rstrip("/"), "bold") if path else ("the function itself", "dim"))
        past = "" if event.ended is None else "past "
        rows.add_row(
            task, text((past, "dim"), _what(event, False)), _came_of(event, executor, False)
        )
    console.print(rows)
    _print_more(console, len(known.places))


def _print_questions(console: Screen, session: Session, questions: Sequence[Question]) -> None:
    for question in questions:
        console.print()
        console.print(
            text(
                ("? ", "bold yellow"),
                (question.question, "bold"),
                f"  wants {wanted(question)}, since {moment(question.since)}{until(question)}",
            )
        )
        tell_data(console, question)
        command = session.command("answer", question.run, "VALUE", to=question.name)
        console.print(text(("  → ", "cyan"), (command, "bold")))


def until(question: Question) -> str:
    """Returns when a question expires, in words; empty if it does not."""
    return "" if question.expires is None else f", until {moment(question.expires)}"


def tell_data(console: Screen, question: Question) -> None:
    """Prints what a question shows."""
    if question.data is not None:
        console.print(text("    ", full(plain.to_json(question.data))))


def question_json(question: Question) -> dict[str, Any]:
    said = {**plain.of(question), "since": plain.time_json(question.since)}
    if question.expires is not None:
        said["expires"] = plain.time_json(question.expires)
    return {**said, "data": plain.to_json(question.data)}


def wanted(question: Question) -> str:
    """Returns the type of an answer, in words."""
    schema = question.schema
    if "enum" in schema:
        return " or ".join(map(short, schema["enum"]))
    kind = schema.get("type")
    if kind == "boolean":
        return "yes or no (a boolean)"
    if kind == "object":
        fields: Any = schema.get("properties", {})
        return f"{schema.get('title', 'an object')} {{{', '.join(map(str, fields))}}}"
    return f"type {kind}" if isinstance(kind, str) else "any value"


def _print_inbox(console: Screen, inbox: Sequence[Message]) -> None:
    if not inbox:
        return
    console.print()
    rows = table("in its inbox", "came", "value")
    for message in inbox[:OTHERS]:
        who = f" from {message.who}" if message.who else ""
        say = short if console.is_terminal else full
        value = "" if message.value is MISSING else say(message.value)
        name = text(message.kind, (f" {message.name}" if message.name else "", "bold"), who)
        rows.add_row(name, moment(message.at), value)
    console.print(rows)
    _print_more(console, len(inbox))


def _print_children(console: Screen, session: Session, children: Sequence[RunInfo]) -> None:
    if not children:
        return
    console.print()
    rows = NamedRows("child", "status", "")
    for child in children[:OTHERS]:
        say = short if console.is_terminal else full
        result = say(child.result) if child.status == "done" else child.problem or ""
        rows.add(child.id, run_status(session, child), result)
    console.print(rows.on(console))
    _print_more(console, len(children))


def _print_more(console: Screen, number: int) -> None:
    if number > OTHERS:
        console.print(text((f"… and {number - OTHERS:,} more; --json has all", "dim")))


# -- as JSON --------------------------------------------------------------------------------


def _report_json(known: RunReport, executor: str | None) -> dict[str, Any]:
    return {
        **plain.run_json(known.info),
        "executor": executor,
        "why": why_json(known.why),
        "timeline": [event_json(event) for event in known.events],
        "places": {path: event_json(event) for path, event in known.places.items()},
        "questions": [question_json(one) for one in known.questions],
        "progress": [
            {"text": note.text, "fraction": note.fraction, "at": plain.time_json(note.at)}
            for note in known.notes
        ],
        "inbox": [message_json(message) for message in known.inbox],
        "children": [plain.run_json(child) for child in known.children],
        "guards": _guards_json(known.guards) if known.guards is not None else None,
    }


def _guards_json(guards: GuardReport) -> dict[str, Any]:
    return {
        "at": plain.time_json(guards.at),
        "seq": guards.seq,
        "on_change": guards.on_change,
        "changed": [plain.of(one) for one in guards.changed],
        "dependencies": dict(guards.dependencies),
        "config": guards.config,
        "environment": list(guards.environment),
    }


def event_json(event: Event) -> dict[str, Any]:
    """Returns one line of a timeline as a JSON object."""
    made = plain.of(event)
    for name in ("at", "ended", "again_at"):
        at = getattr(event, name)
        made[name] = plain.time_json(at) if at is not None else None
    made["branches"] = [plain.of(branch) for branch in event.branches]
    return made


def message_json(message: Message) -> dict[str, Any]:
    """Returns a message as a JSON object."""
    value = None if message.value is MISSING else plain.to_json(message.value)
    return {
        "no": message.no,
        "kind": message.kind,
        "name": message.name,
        "key": message.key,
        "who": message.who,
        "value": value,
        "at": plain.time_json(message.at),
    }


def why_json(said: Explanation) -> dict[str, Any]:
    """Returns why a run is not moving, as a JSON object."""
    return {
        "run": said.run,
        "status": said.status,
        "situation": said.situation,
        "why": said.why,
        "since": plain.time_json(said.since) if said.since is not None else None,
        "deadline": plain.time_json(said.deadline) if said.deadline is not None else None,
        "time_limit_s": said.time_limit and said.time_limit.total_seconds(),
        "time_left_s": said.time_left and said.time_left.total_seconds(),
        "executor": said.executor,
        "behind": said.behind,
        "workers": list(said.workers),
        "calls": [event_json(call) for call in said.calls],
        "last": event_json(said.last) if said.last is not None else None,
        "asked_to_end": plain.time_json(said.asked_to_end) if said.asked_to_end else None,
        "ways": [{"words": way.words, "command": list(way.command)} for way in said.ways],
    }
