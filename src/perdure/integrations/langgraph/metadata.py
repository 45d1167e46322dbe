"""Which metadata is stored with a checkpoint: what LangGraph hands over, and no secret.

LangChain copies scalars of `configurable` (where people put API keys) into the config's metadata,
for tracing. They are none of a checkpoint's business.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

from langgraph.checkpoint.base import EXCLUDED_METADATA_KEYS

SECRETS = ("api_key", "apikey", "token", "password", "passwd", "secret", "credential",
           "authorization", "private_key")  # fmt: skip
"""A key whose name contains one of these is never stored."""

_SCALARS = (str, int, float, bool)


def metadata_to_store(
    config: Mapping[str, Any], metadata: Mapping[str, Any], *, keep: Collection[str],
    secrets: tuple[str, ...],
) -> dict[str, Any]:  # fmt: skip
    """The metadata that belongs to a checkpoint.

    Args:
        metadata: as LangGraph hands it over.
        keep: keys of `configurable` that are to be metadata, too.
        secrets: what the name of a secret contains, in lower case.
    """
    stored = {key: value for key, value in metadata.items() if not is_secret(key, value, secrets)}
    configurable = config.get("configurable") or {}
    for key, value in (config.get("metadata") or {}).items():
        if key not in configurable and _may_add(key, value, stored, secrets):
            stored[key] = value
    for key in keep:
        if key in configurable and _may_add(key, configurable[key], stored, secrets):
            stored[key] = configurable[key]
    return stored


def _may_add(key: str, value: Any, stored: Mapping[str, Any], secrets: tuple[str, ...]) -> bool:
    return (
        key not in stored
        and key not in EXCLUDED_METADATA_KEYS
        and not key.startswith("__")
        and isinstance(value, _SCALARS)
        and not is_secret(key, value, secrets)
    )


def is_secret(key: str, value: Any, secrets: tuple[str, ...]) -> bool:
    if not _sounds_secret(key, secrets):
        return False
    return not (key.lower().endswith("tokens") and type(value) in (int, float))  # what a model took


@lru_cache(maxsize=1024)
def _sounds_secret(key: str, secrets: tuple[str, ...]) -> bool:
    """Of few keys, which each checkpoint has anew."""
    name = key.lower().replace("-", "_")
    return any(secret in name for secret in secrets)
