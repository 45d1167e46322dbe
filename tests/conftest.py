"""What all tests share."""

import gc
import os
import sys

import pytest
from hypothesis import settings

# A slow machine is no bug (pytest-timeout finds what hangs). The same examples every time, so that
# no run fails by luck; PERDURE_HUNT=1 looks for new ones.
settings.register_profile("perdure", deadline=None, derandomize=True)
settings.register_profile("perdure-hunt", deadline=None)
settings.load_profile("perdure-hunt" if os.environ.get("PERDURE_HUNT") else "perdure")

for name in [name for name in os.environ if name.startswith("PG")]:
    del os.environ[name]  # libpq's: they would reach into every connection to the tests' servers

# Images for containers forbid compiled modules. Then each of the hundreds of processes that tests
# start would compile all of the package.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

gc.disable()  # what is being imported stays


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long begins first: begun last, it would leave the other cores without work."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish() -> None:
    """All that the modules made stays to the end: collections, for which some tests ask hundreds
    of times, need not look through it."""
    gc.freeze()
    gc.enable()
