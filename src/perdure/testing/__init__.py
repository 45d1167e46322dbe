"""For tests of agent functions: `play` runs one in memory, with stand-ins and no waiting;
`kill_at_every_boundary` ends it wherever it hurts; `Clock` is a clock that a test moves; `replay`
goes over a recorded run with today's code. For other people's backends: `BackendContract`.

What is imported from here costs only what it needs: the contract, for one, needs pytest.
"""

from typing import TYPE_CHECKING, Any

from perdure.system.lazy_names import LazyNames

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

_NAMES = LazyNames(
    {
        "perdure.testing.contract.backend": "BackendContract",
        "perdure.testing.clock": "Clock",
        "perdure.testing.replaying": "Difference Replayed recorded_runs replay",
        "perdure.testing.boundaries": (
            "Ending boundary kill_program_at_every_boundary run_with_kills"
        ),
        "perdure.testing.mortal": "PhysicalCall",
        "perdure.testing.playing": "Played PlayedCall play",
        "perdure.testing.kills": "RunEnding kill_at_every_boundary",
        "perdure.testing.driving": "run_until_waiting",
    }
)


def __getattr__(name: str) -> Any:
    return _NAMES.find(__name__, name)
