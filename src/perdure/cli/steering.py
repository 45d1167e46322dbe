"""The commands `answer`, `signal`, `cancel`, `resume` and `retry`: what people tell runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from msgspec.structs import replace

from perdure import Conflict, PerdureError, RunHandle
from perdure.cli import plain
from perdure.cli.attention import BLOCKS_MAX, print_explanation
from perdure.cli.failures import UsageError, code_of, report
from perdure.cli.naming import (
    AgentOption,
    AllOption,
    ByOption,
    Filter,
    FunctionOption,
    NewerOption,
    OlderOption,
    QueueOption,
    RunArgument,
    RunsArgument,
    StatusOption,
    YesOption,
    answer_of,
    find_run,
    login,
    value_of,
)
from perdure.cli.session import Session, at_the_head, number_option, opened
from perdure.cli.terminal import Screen, stderr_console, stdout_console, text
from perdure.cli.timeline import question_json, tell_data, until, wanted, why_json
from perdure.cli.words import full
from perdure.model import FINISHED
from perdure.system import shell
from perdure.system.done_already import DoneAlready
from perdure.types import Question, RunInfo

QUESTIONS_SHOWN = 100

MOVING = ("executing", "finished", "waiting")
EffectsOption = Annotated[
    str,
    typer.Option(
        "--effects",
        metavar="ask|reuse|live",
        help="Before it makes a tool call that was "
        "made after that step already, or starts a run that was: ask a person, take what "
        "that gave, or do it anew.",
    ),
]


# -- what a run waits for -------------------------------------------------------------------


def answer(
    ctx: typer.Context,
    run: RunArgument,
    value: Annotated[
        str | None,
        typer.Argument(
            metavar="VALUE",
            help="JSON, or plain words; yes and no where that is "
            "asked. Without: what the run asks.",
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="NAME",
            help="The question that is meant, by the name that is "
            "shown with it; an answer to one that is over is refused.",
        ),
    ] = None,
    by: ByOption = None,
) -> None:
    """Answer a run's question, or show its questions. The answering person is recorded; the first
    answer counts."""
    with DoneAlready() as done, opened(ctx) as session:
        info = find_run(session, run)
        handle = session.store.handle(info.id)
        if value is None:
            _tell_questions(session, handle.questions())
            return
        asked = _asked(session, handle, to)
        # `answer` refuses an answer that nobody asked for, and says whether the question is over.
        given = answer_of(asked, value) if asked is not None else value_of("VALUE", value)
        meant = to if to is not None else asked
        handle.answer(given, to=meant, by=by if by is not None else login())
        done.is_now(*told(handle.id, "the answer is in its inbox"))
        if session.json:
            place = asked.place if asked is not None else to
            said: dict[str, Any] = {"run": info.id, "question": place}
            plain.put({**said, "answer": plain.to_json(given), "why": why_json(handle.why())})
            return
        console = stdout_console()
        words = asked.question if asked is not None else str(to)
        console.print(text((words, "bold"), f" was answered: {full(given)}"))
        tell_what_is_next(console, session, handle)


def questions(
    ctx: typer.Context,
    agent: Annotated[
        str | None, typer.Argument(metavar="AGENT", help="Only what its runs ask.")
    ] = None,
    number: Annotated[int | None, number_option("questions", QUESTIONS_SHOWN)] = None,
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="RUN", help="Behind this run: for the next page."),
    ] = None,
) -> None:
    """List the questions that runs ask and nobody has answered, those of the oldest runs first, and
    how to answer each."""
    with opened(ctx) as session:
        limit = session.shown_of(number, QUESTIONS_SHOWN) or None
        found = session.store.questions(agent, after=after, limit=limit, damaged_too=True)
        if session.json:
            plain.put_all(map(question_json, found))
            return
        _tell_questions(session, found, "nobody is asked anything")
        if limit is not None and len(found) >= limit:
            more = session.command("questions", *([agent] if agent else []), after=found[-1].run)
            stdout_console().print(text((f"… there may be more: {more}", "dim")))


def _tell_questions(
    session: Session, questions: Sequence[Question], none: str = "it asks nothing"
) -> None:
    if session.json:
        plain.put_all(map(question_json, questions))
        return
    console = stdout_console()
    if not questions:
        console.print(none)
    for one in questions:
        console.print(text((one.question, "bold"), f"  wants {wanted(one)}{until(one)}"))
        tell_data(console, one)
        command = session.command("answer", one.run, "VALUE", to=one.name)
        console.print(text(("  → ", "cyan"), (command, "bold")))


def _asked(session: Session, handle: RunHandle[Any], name: str | None) -> Question | None:
    """Returns the question that is meant; None if it asks nothing of this name.

    Raises:
        Conflict: it asks nothing at all; or several things, and `name` does not choose.
    """
    asked = handle.questions()
    if name is not None:
        return next((one for one in asked if name in (one.name, one.place)), None)
    if len(asked) == 1 and asked[0].data is None:
        return asked[0]
    target = f"run {handle.id}"
    if len(asked) == 1:
        raise Conflict(
            f"asks {asked[0].question!r} about data, and the answer does not say what was seen",
            target=target,
            hint=session.command("answer", handle.id, "VALUE", to=asked[0].name),
        )
    if asked:
        hint = " or ".join(
            session.command("answer", handle.id, "VALUE", to=one.name) for one in asked
        )
        raise Conflict(f"asks {len(asked)} things", target=target, hint=hint)
    raise Conflict(
        f"is {handle.status.replace('_', ' ')}, and asks nothing",
        target=target,
        hint="it may have been answered already; `" + session.command("why", handle.id) + "`",
    )


def signal(
    ctx: typer.Context,
    run: RunArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The signal's name.")],
    value: Annotated[
        str, typer.Argument(metavar="VALUE", help="JSON, or plain words. Default: null.")
    ] = "null",
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY", help="With the same key, it arrives only once."),
    ] = None,
    by: ByOption = None,
) -> None:
    """Send a run a signal, durably. It may come before the run waits for it."""
    if key == "":
        raise UsageError(
            "--key must not be empty: two signals whose keys were forgotten would be one"
        )
    if name == "":
        raise UsageError("NAME is empty: name the signal")
    given = value_of("VALUE", value)
    with DoneAlready() as done, opened(ctx) as session:
        info = find_run(session, run)
        handle = session.store.handle(info.id)
        fresh = handle.signal(name, given, key=key, by=by if by is not None else login())
        done.is_now(*told(handle.id, "the signal is in its inbox"))
        if session.json:
            said: dict[str, Any] = {"run": info.id, "signal": name, "fresh": fresh}
            plain.put({**said, "why": why_json(handle.why())})
            return
        console = stdout_console()
        if not fresh:
            console.print(text("a signal ", (name, "bold"), " was sent with that key before"))
            return
        console.print(text("signal ", (name, "bold"), f" is in the inbox of {info.id}"))
        tell_what_is_next(console, session, handle)


def told(run: str, what: str) -> tuple[str, str]:
    """Returns the words for `DoneAlready.is_now`."""
    return (
        f"run {run}: {what}, and what comes next could not be read",
        f"do not repeat this; `{shell.perdure('why', run)}` says how the run is",
    )


def tell_what_is_next(console: Screen, session: Session, handle: RunHandle[Any]) -> None:
    """Prints who will resume it; if nobody will, what to do."""
    said = handle.why()
    if said.situation in MOVING or said.workers:
        return
    print_explanation(console, session, said)


# -- its way --------------------------------------------------------------------------------


def cancel(
    ctx: typer.Context,
    run: RunsArgument = None,
    words: Annotated[str, typer.Option("--why", metavar="TEXT", help="Recorded.")] = "",
    all_: AllOption = False,
    status: StatusOption = None,
    agent: AgentOption = None,
    function: FunctionOption = None,
    queue: QueueOption = None,
    older: OlderOption = None,
    newer: NewerOption = None,
    yes: YesOption = False,
) -> None:
    """End runs. An executing run is asked to end, and leaves its function at its next step or wait.
    Tool calls stay in the ledger; calls in doubt stay in doubt."""
    chosen_by = Filter.of(agent, status, function, queue, older, newer)

    def end(handle: RunHandle[Any]) -> None:
        at_the_head(lambda: handle.cancel(words))

    def tell(console: Screen, session: Session, handle: RunHandle[Any]) -> None:
        if handle.status in FINISHED:
            console.print(text(f"run {handle.id} is ", (handle.status, "bold")))
            return
        said = handle.why()
        if said.executor is None or said.situation != "executing":
            console.print(text(f"run {handle.id} is ", ("asked to end", "bold"), ":"))
            print_explanation(console, session, said)
            return
        console.print(
            text(
                f"run {handle.id} is ",
                ("asked to end", "bold"),
                f": executor {said.executor} has it, and leaves its function at its next step",
            )
        )

    with opened(ctx) as session:
        meant = _meant(session, run, chosen_by, all_, yes, "cancel", unfinished=True)
        _each(session, meant, end, "it is asked to end", tell, many=len(run or ()) != 1)


def resume(
    ctx: typer.Context,
    run: RunsArgument = None,
    all_: AllOption = False,
    status: StatusOption = None,
    agent: AgentOption = None,
    function: FunctionOption = None,
    queue: QueueOption = None,
    older: OlderOption = None,
    newer: NewerOption = None,
    yes: YesOption = False,
) -> None:
    """Let runs that need attention be tried again, once the cause is fixed."""
    chosen_by = Filter.of(agent, status, function, queue, older, newer)

    def again(handle: RunHandle[Any]) -> None:
        at_the_head(handle.resume)

    with opened(ctx) as session:
        meant = _meant(session, run, chosen_by, all_, yes, "resume", status=("needs_attention",))
        _each(session, meant, again, "it may go on", _tell_pending, many=len(run or ()) != 1)


def _tell_pending(console: Screen, session: Session, handle: RunHandle[Any]) -> None:
    console.print(text(f"run {handle.id} is to be ", ("gone on with", "bold")))
    tell_what_is_next(console, session, handle)


def retry(
    ctx: typer.Context,
    step: Annotated[
        str, typer.Option("--from", metavar="STEP", help="A place of their current turn: draft#2.")
    ],
    run: RunsArgument = None,
    effects: EffectsOption = "ask",
    all_: AllOption = False,
    status: StatusOption = None,
    agent: AgentOption = None,
    function: FunctionOption = None,
    queue: QueueOption = None,
    older: OlderOption = None,
    newer: NewerOption = None,
    yes: YesOption = False,
) -> None:
    """Set runs that have ended, or need attention, back to where a step began, together with the
    branch's state: the named ones, or all that failed. Later events stay in the log, and the runs
    get their signals again."""
    _check_effects(effects)
    chosen_by = Filter.of(agent, status, function, queue, older, newer)

    def back(handle: RunHandle[Any]) -> None:
        at_the_head(lambda: handle.retry(step, effects=effects))  # type: ignore[arg-type]

    with opened(ctx) as session:
        meant = _meant(session, run, chosen_by, all_, yes, "retry", status=("failed",))
        _each(session, meant, back, "it is set back", _tell_pending, many=len(run or ()) != 1)


def fork_run(
    ctx: typer.Context,
    run: RunArgument,
    branch: Annotated[str, typer.Argument(metavar="BRANCH", help="The new branch's name.")],
    step: Annotated[
        str, typer.Option("--from", metavar="STEP", help="A place of its current turn: draft#2.")
    ],
    effects: EffectsOption = "ask",
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY", help="The new run's key; default: generated."),
    ] = None,
) -> None:
    """Make another run on a new branch, which continues where a step of this one began; it shares
    the history, and copies nothing."""
    _check_effects(effects)
    with DoneAlready() as done, opened(ctx) as session:
        info = find_run(session, run)
        handle = session.store.handle(info.id)
        new = at_the_head(lambda: handle.fork(step, branch=branch, effects=effects, key=key))  # type: ignore[arg-type]
        done.is_now(*told(new.id, "it is made"))
        if session.json:
            plain.put({"run": new.id, "branch": branch, "status": new.status, "of": info.id})
            return
        console = stdout_console()
        console.print(text(f"run {new.id} on branch ", (branch, "bold"), f" begins at {step}"))
        tell_what_is_next(console, session, new)


def _check_effects(effects: str) -> None:
    if effects not in ("ask", "reuse", "live"):
        raise UsageError(f"--effects {effects}: there are ask, reuse and live")


# -- several at once ------------------------------------------------------------------------


def _meant(
    session: Session,
    named: Sequence[str] | None,
    chosen_by: Filter,
    all_: bool,
    yes: bool,
    what: str,
    *,
    status: tuple[str, ...] = (),
    unfinished: bool = False,
) -> list[RunInfo]:
    """Returns the runs that a command is for; those of a filter after a person agreed.

    Args:
        status: of the runs that a filter means that does not say so.
        unfinished: it means no others.

    Raises:
        UsageError: there are none, or runs and a filter were given, or nobody is there to agree.
    """
    if named:
        if all_ or chosen_by.narrow:
            raise UsageError("give either RUN, or --all with filters")
        found = {run.id: run for run in (find_run(session, name) for name in named)}
        return list(found.values())
    if not all_:
        raise UsageError("name them: RUN …, or --all with filters, e.g. --all --status waiting")
    meant = replace(chosen_by, status=chosen_by.status or status, unfinished=unfinished)
    runs = meant.find(session)
    if not runs or yes:
        return runs
    if session.json or not sys.stdin.isatty():
        raise UsageError(f"that would {what} {len(runs)} runs: pass --yes to do it without asking")
    console = stderr_console()
    for run in runs[:BLOCKS_MAX]:
        console.print(text(f"  {run.id}  ", (run.status.replace("_", " "), "dim")))
    if len(runs) > BLOCKS_MAX:
        console.print(f"  … and {len(runs) - BLOCKS_MAX:,} more")
    number = f"these {len(runs):,} runs" if len(runs) > 1 else "this run"
    if not typer.confirm(f"{what.capitalize()} {number}?", err=True):
        raise typer.Exit(0)
    return runs


def _each(
    session: Session,
    runs: Sequence[RunInfo],
    do: Callable[[RunHandle[Any]], None],
    what: str,
    tell: Callable[[Screen, Session, RunHandle[Any]], None],
    *,
    many: bool = False,
) -> None:
    """Does it to each. An error of one is reported, and the others are done all the same.

    Args:
        what: says what is done then.
        many: print a list in JSON, also for one.

    Raises:
        PerdureError: the only one failed.
        typer.Exit: with the code of the first that failed.
    """
    console = stdout_console()
    made: list[dict[str, Any]] = []
    code = 0
    for run in runs:
        try:
            with DoneAlready() as done:
                handle = session.store.handle(run.id)
                do(handle)
                done.is_now(*told(run.id, what))
                said: dict[str, Any] = {"run": run.id, "status": handle.status}
                if not session.json:
                    tell(console, session, handle)
                elif not many:
                    said["why"] = why_json(handle.why())
                made.append(said)
        except PerdureError as error:
            if not many:
                raise
            code = code or code_of(error)
            made.append({"run": run.id, "error": type(error).__name__, "problem": error.problem})
            if not session.json:
                report(error, as_json=False, say=session.say)
    if session.json:
        if not many:
            plain.put(made[0])
        else:
            plain.put_all(made)
    elif not runs:
        console.print("no such runs")
    if code:
        raise typer.Exit(code)
