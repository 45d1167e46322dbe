"""Standings of the store and its agents in a dict: a part of the memory backend."""

from __future__ import annotations

from perdure.missing import Missing
from perdure.storage.answers import Standing
from perdure.storage.standing import check_stands, closed_error


class Standings(dict[int, Standing]):
    """By the agents' numbers; 0 is the store itself. Its backend's lock orders its users."""

    def put(
        self, standing: Standing | None, no: int, after: Standing | Missing | None, url: str
    ) -> None:
        """See `Backend.stand`."""
        check_stands(self.get(0), after, standing, no, url)
        if standing is not None:
            self[no] = standing
        elif no:
            self.pop(no, None)
        else:
            self.clear()

    def check_open(self, no: int, agent: str, url: str) -> None:
        """Raises ClosedError if an agent, or the store as a whole, takes no writes."""
        standing = self.get(no) or self.get(0)
        if standing is not None and standing.closed:
            raise closed_error(standing, agent if no in self else f"store {url}")
