"""The live objects that the containers of a draft stand for, wherever these were moved.

A container is found by its identity in what its parent held before the draft's changes: what
stands at a place now may be another object than the one that stood there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.core.draft.place import Place, item_of
from perdure.core.draft.undone_changes import Done, held
from perdure.core.live.ephemeral import step
from perdure.core.values.plain_values import Plain
from perdure.missing import MISSING


class Origins:
    """Finds live objects of one draft.

    Args:
        typed: the live typed object; it is as before the draft's changes.
        done: the draft's changes, which grow.
    """

    def __init__(self, typed: Any, done: Sequence[Done]) -> None:
        self._typed = typed
        self._done = done
        self._looked_at = 0
        self._changed: set[int] = set()
        self._held: dict[int, Any] = {}
        self._places: dict[int, dict[int, int]] = {}

    def holder(self, place: Place) -> Any:
        """Returns the live object, list or dict that a place stands for; MISSING where the draft
        brought it in."""
        if place.parent is None:
            return self._typed
        within = self.holder(place.parent)
        if within is MISSING:
            return MISSING
        key = self._key_before(place, place.parent.plain)
        return MISSING if key is MISSING else step(within, place.parent.node, key)

    def _key_before(self, place: Place, parent: Plain) -> Any:
        """Returns the key at which a parent held a place's container before all changes; MISSING
        if it did not."""
        place.find()
        if not self._is_changed(parent):
            return place.key
        if id(parent) not in self._held:
            self._held[id(parent)] = held(parent, self._done)
        before = self._held[id(parent)]
        if type(before) is list:
            if id(parent) not in self._places:
                self._places[id(parent)] = {id(one): at for at, one in enumerate(before)}
            return self._places[id(parent)].get(id(place.plain), MISSING)
        default = MISSING if place.pending else place.plain  # of a field that was not stored
        return place.key if item_of(before, place.key) is default else MISSING

    def _is_changed(self, container: Plain) -> bool:
        if len(self._done) > self._looked_at:
            self._changed.update(id(done[1]) for done in self._done[self._looked_at :])
            self._looked_at = len(self._done)
        return id(container) in self._changed
