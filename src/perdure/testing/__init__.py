"""For tests: the contract that every backend keeps, `play`, which runs an agent function with no
file and no network, and `kill_at_every_boundary`, which ends a program wherever it hurts."""

from perdure.testing.boundaries import Ending, boundary, kill_at_every_boundary, run_with_kills
from perdure.testing.contract import BackendContract
from perdure.testing.play import Played, PlayedCall, play

__all__ = [
    "BackendContract",
    "Ending",
    "Played",
    "PlayedCall",
    "boundary",
    "kill_at_every_boundary",
    "play",
    "run_with_kills",
]
