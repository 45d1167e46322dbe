"""What all tests share."""

import os

from hypothesis import settings

# A slow machine is no bug (pytest-timeout finds what hangs). In CI, the same examples every time.
settings.register_profile("perdure", deadline=None)
settings.register_profile("perdure-ci", deadline=None, derandomize=True)
settings.load_profile("perdure-ci" if os.environ.get("CI") else "perdure")
