"""The same graph over PerdureSaver, the charge a durable run: `FOLDER ORDER POLICY [--settle]`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import perdure
from bench.crash import card
from bench.crash.agents.langgraph_agent import run_graph
from bench.crash.agents.perdure_agent import TOOLS, settle
from perdure.integrations.langgraph import PerdureSaver


@perdure.agent(dict)
def charging(run: perdure.Run[dict[str, Any]], order: str, policy: str) -> str:
    return TOOLS[policy](order)


def main(folder: str, order: str, policy: str, *options: str) -> None:
    with perdure.open(Path(folder) / "agent.db") as store:
        agent = f"charge-of-{order}"
        if "--settle" in options:
            settle(store, f"{agent}/charging/main", order)

        def charge(order: str) -> str:
            return store.run(charging, agent, order, policy)

        try:
            said = run_graph(PerdureSaver(store), order, charge)
        except perdure.NeedsAttention as doubt:
            card.report(card.ASKS, doubt)
        else:
            card.report(card.FINISHED, said)


if __name__ == "__main__":
    main(*sys.argv[1:])
