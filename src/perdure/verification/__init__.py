"""Checks that a log and the views beside it agree, and repair of the views."""
