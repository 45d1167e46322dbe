"""What psycopg itself refuses to send is no trouble of the server's."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from perdure.errors import StoreUnavailable, Unstorable
from perdure.storage.postgres.backend import PostgresBackend
from perdure.testing.pen import Pen


def test_a_value_that_cannot_be_sent_is_not_a_server_that_is_away(backend: PostgresBackend) -> None:
    """A number of a strange type was "the server cannot be reached": the hint was to make the call
    again when it is up, which can never succeed."""
    pen = Pen(backend)
    pen.write()
    wrong: Any = Fraction(1, 3)
    within: Any = []
    within.append(within)
    calls = (
        lambda: backend.read(wrong, 1, 1),
        lambda: backend.agent("a", wrong),
        lambda: backend.agent("a", within),
    )
    for call in calls:
        with pytest.raises(Unstorable) as caught:
            call()
        assert not isinstance(caught.value, StoreUnavailable)
    pen.write()
