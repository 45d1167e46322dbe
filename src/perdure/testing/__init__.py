"""For tests of agent functions: `play` runs one in memory, with stand-ins and no waiting;
`kill_at_every_boundary` ends it wherever it hurts; `Clock` is a clock that a test moves; `replay`
goes over a recorded run with today's code. For other people's backends: `BackendContract`.

What is imported from here costs only what it needs: the contract, for one, needs pytest.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.testing.boundaries import (
        Ending,
        boundary,
        kill_program_at_every_boundary,
        run_with_kills,
    )
    from perdure.testing.clock import Clock
    from perdure.testing.contract.backend import BackendContract
    from perdure.testing.driving import run_until_waiting
    from perdure.testing.kills import RunEnding, kill_at_every_boundary
    from perdure.testing.mortal import PhysicalCall
    from perdure.testing.playing import Played, PlayedCall, play
    from perdure.testing.replaying import Difference, Replayed, recorded_runs, replay

__all__ = [
    "BackendContract",
    "Clock",
    "Difference",
    "Ending",
    "PhysicalCall",
    "Played",
    "PlayedCall",
    "Replayed",
    "RunEnding",
    "boundary",
    "kill_at_every_boundary",
    "kill_program_at_every_boundary",
    "play",
    "recorded_runs",
    "replay",
    "run_until_waiting",
    "run_with_kills",
]

_WHERE = {
    "BackendContract": "contract.backend",
    "Clock": "clock",
    "Difference": "replaying",
    "Ending": "boundaries",
    "PhysicalCall": "mortal",
    "Played": "playing",
    "PlayedCall": "playing",
    "Replayed": "replaying",
    "RunEnding": "kills",
    "boundary": "boundaries",
    "kill_at_every_boundary": "kills",
    "kill_program_at_every_boundary": "boundaries",
    "play": "playing",
    "recorded_runs": "replaying",
    "replay": "replaying",
    "run_until_waiting": "driving",
    "run_with_kills": "boundaries",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    found = getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
    globals()[name] = found  # `play` is a function and a module: the module must not hide it
    return found
