"""The metadata that is stored with a checkpoint: what LangGraph hands over, without secrets.

As LangGraph's own savers do, texts and numbers of the config's metadata and of `configurable` are
stored, too, so that checkpoints can be listed by them. People put API keys into `configurable`,
too: values whose name or content looks like a secret are left out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from langgraph.checkpoint.base import EXCLUDED_METADATA_KEYS

from perdure.core.arguments.names import shown
from perdure.core.values.plain_values import DEPTH_MAX
from perdure.errors import Unstorable
from perdure.system import logs

SECRETS = (
    "api_key",
    "apikey",
    "token",
    "password",
    "passwd",
    "secret",
    "credential",
    "authorization",
    "private_key",
)
"""A key whose name contains one of these is never stored."""

_OPENS = (*SECRETS, "jwt", "bearer", "cookie", "session_key", "signature", "dsn", "_url")
"""Names of `configurable` that are taken for those of secrets, or of what has one in it."""

_LOOKS = re.compile(
    r"(?:sk|pk|rk|xox[a-z]|gh[a-z]|glpat|github_pat|hf|pat|key)[-_]\w"
    r"|AKIA|ASIA|AIza|eyJ|ya29\.|-----BEGIN|Bearer |Basic |\w+://[^/\s]*:[^/\s]*@"
)
"""The beginnings of well-known kinds of credentials."""

VALUE_MAX = 256
"""Characters of a value of `configurable` that anybody would list checkpoints by."""

_SCALARS = (str, int, float, bool)


def metadata_to_store(
    config: Mapping[str, Any],
    metadata: Mapping[str, Any],
    *,
    keep: Collection[str],
    secrets: tuple[str, ...],
) -> dict[str, Any]:
    """Returns the metadata to store with a checkpoint. Raises Unstorable if it changes in the
    meantime.

    Args:
        metadata: as LangGraph hands it over.
        keep: keys of `configurable` that are metadata even if they look like secrets.
        secrets: parts of names that mark a secret, in lower case.
    """
    try:
        stored = {
            key: value if type(value) in _SCALARS else as_list(value)
            for key, value in metadata.items()
            if not is_secret(key, value, secrets)
        }
    except RuntimeError as error:
        if type(error) is not RuntimeError:  # e.g. no stack is left
            raise
        raise Unstorable(
            "it changed while it was read",
            target="metadata",
            hint="pass a copy that no other code changes",
        ) from error
    configurable = config.get("configurable") or {}
    for key, value in (config.get("metadata") or {}).items():
        if key not in configurable and _may_add(key, value, stored, secrets):
            stored[key] = value
    for key, value in configurable.items():
        if key[:2] == "__" or key in EXCLUDED_METADATA_KEYS:  # most of them, at each step
            continue
        if _may_add(key, value, stored, secrets) and (key in keep or not _looks_secret(key, value)):
            stored[key] = value
    return stored


def as_list(value: Any, level: int = 0) -> Any:
    """Returns metadata as LangGraph's savers return it: as JSON, which has no tuples. A value that
    is nested too deep, or contains itself, is returned as it is: it is refused when it is
    encoded."""
    if level > DEPTH_MAX:
        return value
    if type(value) is tuple or type(value) is list:
        return [as_list(item, level + 1) for item in value]
    if type(value) is dict:
        return {key: as_list(item, level + 1) for key, item in value.items()}
    return value


def _may_add(key: str, value: Any, stored: Mapping[str, Any], secrets: tuple[str, ...]) -> bool:
    return (
        key not in EXCLUDED_METADATA_KEYS
        and not str(key).startswith("__")
        and key not in stored
        and isinstance(value, _SCALARS)
        and not is_secret(key, value, secrets)
    )


def is_secret(key: str, value: Any, secrets: tuple[str, ...]) -> bool:
    if not _sounds_secret(key, secrets):
        return False
    return not (key.lower().endswith("tokens") and type(value) in (int, float))  # what a model took


def _looks_secret(key: str, value: Any) -> bool:
    if _opens(key):
        return True
    return isinstance(value, str) and (len(value) > VALUE_MAX or _LOOKS.match(value) is not None)


def _opens(key: str) -> bool:
    return _sounds_secret(key, _OPENS) or "auth" in key.lower().replace("author", "")


def warn_of_secrets(
    asked: Mapping[str, Any], *, keep: Collection[str], secrets: tuple[str, ...]
) -> None:
    """Warns once for each key if a caller searches for checkpoints by metadata that is never
    stored."""
    for key, value in asked.items():
        name = str(key)
        said = shown(name)
        if said in _warned or len(_warned) >= WARNED_MAX:
            continue
        if is_secret(name, value, secrets):
            _warned.add(said)
            _log.warning(_NEVER, said)
        elif name not in keep and _looks_secret(name, value):
            _warned.add(said)
            _log.warning(_SELDOM, said, said)


WARNED_MAX = 1000
_warned: set[str] = set()
_log = logs.logger("perdure.langgraph")
_NEVER = (
    "no checkpoint is found by %s: a value with such a name is taken for a secret, and never "
    "stored with one. Use another name for the value"
)
_SELDOM = (
    "a filter by %s finds no value that came in `configurable`: it looks like a secret, and is not "
    "stored. PerdureSaver(…, keep=[%s]) stores it from then on"
)


def _sounds_secret(key: str, secrets: tuple[str, ...]) -> bool:
    """Returns True if a name sounds like a secret."""
    name = key.lower().replace("-", "_")
    return any(secret in name for secret in secrets)
