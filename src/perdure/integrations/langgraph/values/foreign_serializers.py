"""LangGraph's serializers, for values of kinds that no thread knows: which of them may be used."""

from __future__ import annotations

import threading
from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.event_hooks import register_serde_event_listener
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

PROBE = "readable"


def _hides(serde: SerializerProtocol) -> bool:
    """Returns True if the serializer writes a text so that it is not readable in the bytes."""
    try:
        return PROBE.encode() not in bytes(serde.dumps_typed(PROBE)[1])
    except Exception:
        return False


def loads(serde: SerializerProtocol, kind: str, data: bytes) -> Any:
    """Loads a value as `loads_typed` does, but raises where that would silently return raw data."""
    blocked: list[str] = []
    me = threading.get_ident()

    def listen(event: Any) -> None:
        if "blocked" in event["kind"] and threading.get_ident() == me:
            blocked.append(f"{event['module']}.{event['name']}")

    stop = register_serde_event_listener(listen)
    try:
        value = serde.loads_typed((kind, data))
    finally:
        stop()
    if blocked:
        raise ValueError(f"{blocked[0]} is not in its allowlist")
    return value


def usable(serde: SerializerProtocol | None) -> SerializerProtocol | None:
    """Returns a serializer that may be used for exotic values.

    Raises:
        ValueError: it would unpickle what it reads; or it hides what it writes.
    """
    if serde is not None and (isinstance(serde, EncryptedSerializer) or _hides(serde)):
        raise ValueError(
            "a serializer that encrypts would leave the store in plain text: PerdureSaver keeps "
            "values by their fields, and hands only a few of them to `serde`. Perdure cannot seal "
            "a store yet: put it on an encrypted disk or database, encrypt the secret fields "
            "before they come into the state, or stay with LangGraph's own saver"
        )
    if getattr(serde, "pickle_fallback", False):
        raise ValueError(
            "a serializer with pickle_fallback=True runs code that it reads from the database; "
            "give one without, and register your types instead: PerdureSaver(…, types=[…])"
        )
    if isinstance(serde, JsonPlusSerializer) and serde._allowed_msgpack_modules is True:
        return JsonPlusSerializer(allowed_msgpack_modules=None)  # its own default allows all
    return serde
