"""What people type, on what grows: they read what they show.

Imported where it is measured: it loads all commands.
"""

from __future__ import annotations

from typer.testing import CliRunner

from bench.growth.calls import Measure, call, often
from bench.growth.places import Place
from perdure.cli.app import app


def _command(*arguments: str, history: str) -> None:
    def does(place: Place, measure: Measure) -> None:
        def run() -> None:
            given = [*arguments, "--store", place.url]
            answer = CliRunner().invoke(app, given, catch_exceptions=False)
            assert answer.exit_code == 0, answer.output

        often(measure, lambda _: run(), 1)

    call(f"perdure {' '.join(arguments)}", history=history, growth="linear")(does)


_command("show", "a", history="log")
_command("log", "a", history="log")
_command("why", "a", history="steps")
_command("run", "show", "a", history="steps")
_command("effects", "a", history="steps")
_command("runs", history="agents")
_command("ls", history="agents")
