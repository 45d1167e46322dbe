"""The demonstration from beginning to end: plan, perform, check, tell."""

from __future__ import annotations

import os
import random
import shlex
import signal
import sys
import sysconfig
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from examples.demo import check, display
from examples.demo.check import Check
from examples.demo.conductor import Conductor, Job, Story
from examples.demo.ledger import Line
from examples.migration import CACHES, plan
from perdure import PerdureError

KILLS = 20
KILLS_MIN = 10
BATCHES = 100
PLAIN_WIDTH = 120


@dataclass(frozen=True)
class Options:
    """What the environment asks for."""

    source: Path
    dest: Path | None
    kills: int
    seed: int
    skip: list[str]

    @classmethod
    def read(cls) -> Options:
        env = os.environ
        skip = list(CACHES)
        if not env.get("SOURCE"):
            skip.append("site-packages")  # lies inside the standard library, and may be huge
        return cls(
            Path(env.get("SOURCE") or sysconfig.get_path("stdlib")).resolve(),
            Path(env["DEST"]).resolve() if env.get("DEST") else None,
            max(int(env.get("KILLS") or KILLS), 0),
            int(env.get("SEED") or random.randrange(10**6)),
            skip,
        )


def prepare(options: Options) -> Job:
    """A job of about a hundred batches.

    Raises:
        SystemExit: there is nothing to move, or the destination is not empty.
    """
    source = options.source
    files = len(plan(str(source), 1, options.skip))  # outside of runs it is just a function
    if not files:
        raise SystemExit(f"SOURCE {source}: there are no files in it")
    dest = options.dest
    if dest is not None and dest.is_relative_to(source):
        raise SystemExit(f"DEST {dest} lies inside SOURCE")
    if dest is not None and dest.exists() and any(dest.iterdir()):
        raise SystemExit(f"DEST {dest} is not empty: who could tell what came from here?")
    work = Path(tempfile.mkdtemp(prefix="perdure-demo-"))
    batch_files = -(-files // BATCHES)
    batches = -(-files // batch_files)
    return Job(source, dest or work / "dest", work, options.skip, batch_files, batches)


def check_all(
    job: Job, story: Story, lines: list[Line], wanted: int
) -> tuple[list[Check], check.Log | None]:
    """Every check, also that there were as many kills as wanted; and the log, if it can be read."""
    few = [f"only {len(story.kills)}, {wanted} were wanted"] if len(story.kills) < wanted else []
    same = len(set(story.results)) <= 1
    checks = [
        Check("no process failed, none was stuck", story.problems),
        Check(f"{len(story.kills)} kills, and a recovery from each", few),
        Check("all processes that came to the end gave one result", [] if same else story.results),
    ]
    source = check.tree_hashes(job.source, job.skip)
    checks.append(check.check_trees(source, check.tree_hashes(job.dest, [])))
    try:
        log = check.read_log(job.store)
    except (PerdureError, OSError) as error:
        return [*checks, Check("the log is whole: verify", [str(error)])], None
    checks.extend(check.check_log(job, log, lines, source))
    checks.append(Check(f"the log is whole: verify read {log.commits} commits", []))
    return checks, log


def tell_how_to_look(console: Console, job: Job) -> None:
    perdure = Path(sys.executable).parent / "perdure"
    program = os.path.relpath(perdure) if perdure.is_relative_to(Path.cwd()) else str(perdure)
    if not perdure.exists():
        program = "perdure"
    console.print("\n[bold]Look around:[/]")
    for command in ("log", "show", "verify"):
        line = shlex.join([program, "--store", str(job.store), command, check.AGENT])
        console.print(f"  {escape(line)}", highlight=False, soft_wrap=True)
    console.print(
        f"\nEverything is kept in {escape(str(job.work))}; remove it when you have seen enough.",
        style="dim", highlight=False, soft_wrap=True,
    )  # fmt: skip


def main() -> int:
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ended politely, we tidy up, too
    options = Options.read()
    job = prepare(options)
    try:
        return perform(options, job, console)
    except KeyboardInterrupt:
        console.print(
            f"\nInterrupted. All processes are ended; what there was is in {escape(str(job.work))}",
            highlight=False, soft_wrap=True,
        )  # fmt: skip
        return 130


def perform(options: Options, job: Job, console: Console) -> int:
    """The performance and its checks; returns the exit status."""
    console.print(
        f"Moving {escape(str(job.source))} in {job.batches} batches of up to {job.batch_files} "
        f"files, with {options.kills} kills (SEED={options.seed}).",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    show = display.Display(job, options.kills, console)
    conductor = Conductor(job, options.kills, options.seed, show.tell)
    show.follow(conductor.story)
    began = time.monotonic()
    with show:
        story = conductor.play()
    seconds = time.monotonic() - began
    # In a handful of batches there is not room enough; then we say so below, and claim nothing.
    wanted = min(KILLS_MIN, options.kills) if job.batches >= BATCHES // 2 else 0
    with console.status("checking from outside …"):
        checks, log = check_all(job, story, conductor.ledger.lines, wanted)
    display.show_checks(console, checks)
    if log is not None:
        display.show_figures(console, check.figures(story, log, seconds))
    if story.finished and len(story.kills) < options.kills:
        console.print(
            f"\nOnly {len(story.kills)} of {options.kills} kills found their moment: "
            f"{job.batches} batches were moved too fast. A larger SOURCE gives them more.",
            style="yellow", highlight=False,
        )  # fmt: skip
    tell_how_to_look(console, job)
    failed = [one for one in checks if not one.holds]
    for one in failed:
        console.print(f"FAILED: {one.claim}", style="bold red", highlight=False, soft_wrap=True)
    return 1 if failed else 0
