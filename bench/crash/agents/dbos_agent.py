"""The agent as a DBOS workflow: `FOLDER ORDER [--key]`; runs in DBOS's environment.

Configured as in `bench.peers.dbos_program`. After a crash the launch recovers what was pending, and
the same call under the same workflow id gives its result. With --key the company gets the ids of
workflow and step.
"""

from __future__ import annotations

import sys
from pathlib import Path

from dbos import DBOS, SetWorkflowID  # type: ignore[import-not-found]

from bench.crash import card


def _price(order: str) -> int:
    return card.CENTS


def _charge(order: str, with_key: bool) -> str:
    return card.charge(order, f"{DBOS.workflow_id}/{DBOS.step_id}" if with_key else "")


price = DBOS.step(name="price")(_price)
charge = DBOS.step(name="charge")(_charge)


def _buy(order: str, with_key: bool) -> str:
    price(order)
    receipt = charge(order, with_key)
    card.moment(card.NEXT)
    return f"thank you for {receipt}"


buy = DBOS.workflow(name="buy")(_buy)


def main(folder: str, order: str, *options: str) -> None:
    url = f"sqlite:///{Path(folder) / 'dbos.sqlite'}"
    DBOS(
        config={
            "name": "crash",
            "system_database_url": url,
            "log_level": "ERROR",
            "application_version": "1",
            "executor_id": "local",
        }
    )
    DBOS.launch()
    with SetWorkflowID(order):
        handle = DBOS.start_workflow(buy, order, "--key" in options)
    said = handle.get_result()
    status = str(handle.get_status().status)
    card.report(card.FINISHED if status == "SUCCESS" else status, said)
    DBOS.destroy()


if __name__ == "__main__":
    main(*sys.argv[1:])
