"""`python -m tests.soak.worker FOLDER PID [PLANT …]`: a worker that lives for as long as the soak,
which is the process PID, or until it is killed."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import perdure
from tests.soak import cases
from tests.soak.house import House

LOOK_S = 0.1
LIMIT = 6


def main(folder: str, conductor: str, *plants: str) -> int:
    house = House(Path(folder))
    cases.come(house.folder, frozenset(plants))
    with perdure.open(house.store) as store:
        worker = perdure.Worker(store, cases.FUNCTIONS, limit=LIMIT)

        def watch() -> None:
            while not house.finished.exists():
                if os.getppid() != int(conductor):
                    os._exit(1)
                time.sleep(LOOK_S)
            worker.stop()

        threading.Thread(target=watch, daemon=True).start()
        worker.run(signals=False)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
