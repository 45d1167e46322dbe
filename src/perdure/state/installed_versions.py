"""The hash of a configuration, and the installed versions of distributions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

from perdure.core.arguments.checks import mapping
from perdure.core.arguments.names import words_of
from perdure.core.values import codec
from perdure.core.values.plain_values import take
from perdure.errors import NotFound
from perdure.system.cached import kept_of_one
from perdure.system.late_imports import loading


def config_hash(config: Mapping[str, Any] | None) -> str | None:
    """Returns the hash of a configuration; its values must be plain.

    Raises:
        TypeError: it is not a mapping.
    """
    if config is None:
        return None
    plain = take(mapping(config, "config= must be a mapping of names to values"), root="config")
    return "sha256:" + sha256(b"perdure.config.v1\0" + codec.canonical(plain)).hexdigest()


def versions(names: Iterable[str]) -> dict[str, str]:
    """Returns the installed versions of distributions.

    Raises:
        NotFound: one is not installed. TypeError: a single name instead of several.
    """
    found = {}
    for name in words_of(names, "dependencies"):
        version = installed(name)
        if version is None:
            raise NotFound(
                "is not installed",
                target=f"distribution {name!r}",
                hint="name distributions as `pip list` does",
            )
        found[name] = version
    return found


def installed(name: str) -> str | None:
    """Returns the installed version of a distribution; None if there is none.

    Raises:
        StoreUnavailable: that cannot be found out now.
    """
    with loading:
        from importlib import metadata  # 15 ms to import, for few

        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            # It finds nothing, either, where no folder can be opened.
            os.close(os.open(os.path.dirname(metadata.__file__), os.O_RDONLY))
            return None


@kept_of_one(1024)
def loaded_version(name: str) -> str | None:
    """Returns the version of a distribution as this process first saw it: whatever is installed
    since, the process continues with what it loaded. Reading it again takes 1 ms."""
    return installed(name)
