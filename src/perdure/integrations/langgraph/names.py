"""How a thread's parts are named in its agent's log: branches, idempotency keys, configs."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import quote, unquote

from perdure.model import MAIN

SCHEMA_ID = "langgraph.thread"
SCHEMA_VERSION = (1, 0)
REMOVED = "@removed"
"""The branch whose state says which checkpoints are removed."""

BRANCH_MAX = 180


def branch_of(namespace: str, number: int) -> str:
    """The branch of a namespace's n-th line, from 1. Lines are numbered without gaps, so that they
    can be found by asking for one after the other."""
    if namespace == "":
        name = MAIN
    else:
        name = "ns:" + quote(namespace, safe=":|/@ ,()[]=")
        if len(name) > BRANCH_MAX:
            name = f"{name[:120]}…{sha256(namespace.encode()).hexdigest()[:32]}"
    return name if number == 1 else f"{name}~{number}"


def checkpoint_key(namespace: str, checkpoint_id: str, number: int) -> str:
    """The key of the commit that put a checkpoint for the n-th time."""
    return f"c:{number}:{quote(namespace, safe='|/')}:{checkpoint_id}"


def writes_key(namespace: str, checkpoint_id: str, number: int) -> str:
    """The key of the n-th commit of writes for a checkpoint."""
    return f"w:{number}:{quote(namespace, safe='|/')}:{checkpoint_id}"


def read_checkpoint_key(key: str | None) -> tuple[str, str] | None:
    """Namespace and id of the checkpoint that a commit with this key put, if it put one."""
    if key is None or not key.startswith("c:"):
        return None
    _, _, namespace, checkpoint_id = key.split(":", 3)
    return unquote(namespace), checkpoint_id


def _configurable(config: Mapping[str, Any] | None) -> Mapping[str, Any]:
    found = (config or {}).get("configurable")
    return found if isinstance(found, Mapping) else {}


def thread_id_of(config: Mapping[str, Any] | None) -> str:
    """The thread that a config names.

    Raises:
        ValueError: it names none, or not one that an agent can be called.
    """
    found = _configurable(config).get("thread_id")
    if found is None:
        raise ValueError(
            'the config names no thread: pass config={"configurable": {"thread_id": "…"}}'
        )
    return str(found)


def namespace_of(config: Mapping[str, Any] | None) -> str:
    found = _configurable(config).get("checkpoint_ns")
    return "" if found is None or found == "" else text_of(found, "checkpoint_ns")


def checkpoint_id_of(config: Mapping[str, Any] | None) -> str | None:
    found = _configurable(config).get("checkpoint_id")
    return None if found is None or found == "" else text_of(found, "checkpoint_id")


def text_of(value: Any, name: str) -> str:
    """An id as text.

    Raises:
        ValueError: it is empty, or no text.
    """
    text = str(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the config's {name} is no text: a lone surrogate in it") from None
    if not text:
        raise ValueError(f"an empty {name}")
    return text


def config_of(thread_id: str, namespace: str, checkpoint_id: str) -> dict[str, Any]:
    return {
        "configurable": {
            "thread_id": thread_id,
            "checkpoint_ns": namespace,
            "checkpoint_id": checkpoint_id,
        }
    }
