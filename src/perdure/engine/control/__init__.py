"""Runs from outside: handles, reports, why a run waits, and running anew from a step."""
