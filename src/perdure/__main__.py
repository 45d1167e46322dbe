"""`python -m perdure` is the command line."""

from perdure.cli import main

main()
