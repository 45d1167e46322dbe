"""`perdure purge`: what deleted agents left goes, and what it says of that."""

from __future__ import annotations

import perdure
from tests.cli.operator import Operator


def test_what_was_deleted_goes_and_is_proved_still(operator: Operator) -> None:
    with perdure.open(operator.path) as store:
        store.delete("ticket-42", purge=True)
        store.delete("ticket-43")
    found = operator.json("purge", "--shrink")
    assert found == {
        "purged": [{"agent": "ticket-42", "incarnation": 1}],
        "kept": [],
        "shrunk": True,
    }
    assert "nothing was deleted to be purged" in operator.see("purge")
    assert "purged" in operator.see("verify", "ticket-42")
    assert "purged" in operator.refused("log", "--all", "ticket-42")[1]
    assert "1 log purged" in operator.see("purge", "ticket-43")
    assert "no deleted agent" in operator.refused("purge", "ticket-44")[1]
