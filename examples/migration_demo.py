"""The show: `migration.py` copies a real directory tree while this kills it, again and again.

    make demo                     # or: SOURCE=dir DEST=dir KILLS=40 SEED=7 make demo

The source is only read: by default it is the standard library of the Python that runs this.
How it is done is in `demo/`: `conductor.py` starts and kills, `worker.py` is what it kills,
`check.py` looks at the result from outside, `display.py` draws.
"""

import argparse
import sys
from pathlib import Path

if __name__ == "__main__":
    kept = argparse.RawDescriptionHelpFormatter  # it takes no arguments: help, and no wrong ones
    argparse.ArgumentParser(description=__doc__, formatter_class=kept).parse_args()
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # wherever it is started from
    from examples.demo.show import main

    sys.exit(main())
