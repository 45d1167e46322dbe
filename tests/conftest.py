"""What all tests share."""

import os

from hypothesis import settings

# A slow machine is no bug (pytest-timeout finds what hangs). The same examples every time, so that
# no run fails by luck; PERDURE_HUNT=1 looks for new ones.
settings.register_profile("perdure", deadline=None, derandomize=True)
settings.register_profile("perdure-hunt", deadline=None)
settings.load_profile("perdure-hunt" if os.environ.get("PERDURE_HUNT") else "perdure")

for name in [name for name in os.environ if name.startswith("PG")]:
    del os.environ[name]  # libpq's: they would reach into every connection to the tests' servers
