"""The agent under Perdure: `FOLDER ORDER POLICY [--settle]`.

With --settle a person looks at the company's books first, and says what became of the charge.
"""

from __future__ import annotations

import sys
from pathlib import Path

import perdure
from bench.crash import card


@perdure.step
def price(order: str) -> int:
    return card.CENTS


@perdure.tool(on_crash="retry")
def charge_retry(order: str) -> str:
    return card.charge(order, perdure.idempotency_key())


def find_charge(order: str) -> object:
    found = card.charges(key=perdure.idempotency_key())
    return found[0]["id"] if found else perdure.NOT_DONE


@perdure.tool(on_crash="probe", probe=find_charge)
def charge_probe(order: str) -> str:
    return card.charge(order, perdure.idempotency_key())


@perdure.tool(on_crash="ask")
def charge_ask(order: str) -> str:
    return card.charge(order, perdure.idempotency_key())


@perdure.tool(on_crash="fail")
def charge_fail(order: str) -> str:
    return card.charge(order, perdure.idempotency_key())


TOOLS = {"retry": charge_retry, "probe": charge_probe, "ask": charge_ask, "fail": charge_fail}


@perdure.agent(dict)
def buy(run: perdure.Run[dict[str, object]], order: str, policy: str) -> str:
    price(order)
    receipt = TOOLS[policy](order)
    card.moment(card.NEXT)
    return f"thank you for {receipt}"


def settle(store: perdure.Store, run: str, order: str) -> None:
    """What a person does who is asked: looks the order up, and says what became of its charge."""
    handle = store.handle(run)
    for effect in handle.effects():
        if effect.state == "in doubt":
            found = card.charges(order=order)
            done = {"done": found[0]["id"]} if found else {"not_done": True}
            handle.settle(effect.place, by="somebody who looked", **done)


def main(folder: str, order: str, policy: str, *options: str) -> None:
    with perdure.open(Path(folder) / "agent.db") as store:
        if "--settle" in options:
            settle(store, f"{order}/buy/main", order)
        try:
            said = store.run(buy, order, order, policy)
        except perdure.NeedsAttention as doubt:
            card.report(card.ASKS, doubt)
        except perdure.InDoubt as doubt:
            card.report(card.DOUBTS, doubt)
        else:
            card.report(card.FINISHED, said)


if __name__ == "__main__":
    main(*sys.argv[1:])
