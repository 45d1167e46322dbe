"""For tests: the contract that every backend keeps, and `play`, which runs an agent function with
no file and no network."""

from perdure.testing.contract import BackendContract
from perdure.testing.play import Played, PlayedCall, play

__all__ = ["BackendContract", "Played", "PlayedCall", "play"]
