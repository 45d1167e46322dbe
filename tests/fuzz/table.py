"""All targets, by name: where each is, and how many inputs of it `make test` tries."""

from __future__ import annotations

TARGETS: dict[str, tuple[str, int]] = {
    "values": ("decoders:values", 3000),
    "envelopes": ("decoders:envelopes", 3000),
    "payloads": ("decoders:payloads", 2500),
    "headers": ("decoders:headers", 2500),
    "snapshots": ("decoders:sealed", 300),
    "remains": ("decoders:remains_of", 500),
    "urls": ("tokens:urls", 1500),
    "cursors": ("tokens:cursors", 400),
    "standings": ("tokens:standings", 1500),
    "words": ("tokens:words", 1500),
    "logs": ("logs:logs", 120),
    "portable": ("logs:portable", 250),
    "pages": ("files:pages", 35),
    "cells": ("files:cells", 40),
    "commands": ("commands:commands", 100),
    "langgraph-values": ("threads:theirs", 800),
    "langgraph-plain": ("threads:plain", 1500),
    "langgraph-threads": ("threads:threads", 80),
    "langgraph-source": ("threads:source", 35),
}


def spec(name: str) -> str:
    """As `tests.fuzz.child` takes it."""
    return f"tests.fuzz.targets.{TARGETS[name][0]}"
