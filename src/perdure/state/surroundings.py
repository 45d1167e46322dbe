"""The surroundings of a run, configuration, versions and environment: as they are here, as its log
has them, and the differences."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct

from perdure.core.arguments.bounds import NAME_MAX
from perdure.core.arguments.checks import mapping
from perdure.core.format.record_parts import Change, Surroundings
from perdure.core.format.records import CheckpointRecord, Guarded, Pending, Record, Stopped
from perdure.core.schema.digest_keys import DigestKeys, key_of
from perdure.core.schema.value_digest import digest
from perdure.core.values.plain_values import take
from perdure.errors import NeedsAttention, StoreUnavailable
from perdure.public_data import PublicData
from perdure.state.guards import NAMES_MAX, Guards
from perdure.state.installed_versions import config_hash, loaded_version
from perdure.visible import visible

SHOWN = 5


class SurroundingsChange(PublicData, Struct, frozen=True):
    """One difference between the surroundings that a run recorded and those that it found."""

    what: str
    recorded: str
    found: str

    def __str__(self) -> str:
        return f"{self.what}: recorded {self.recorded}, found {self.found}"


class ChangedError(NeedsAttention):
    """The surroundings of a run are `now` others, and its guards say that it stops."""

    def __init__(self, run: str, now: Surroundings, changed: Collection[Change], hint: str) -> None:
        super().__init__(
            f"its surroundings changed since it was last executed: {in_words(changed)}",
            target=f"run {run}",
            hint=hint,
        )
        self.now, self.changed = now, changed


def in_words(changed: Collection[Change]) -> str:
    """Returns differences on one line, the first few of them."""
    said = [str(SurroundingsChange(*one)) for one in [*changed][:SHOWN]]
    more = f"; and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
    return visible("; ".join(said) + more)


# -- what is here ----------------------------------------------------------------------------------


def find_surroundings(
    guards: Collection[Guards], known: Surroundings | None, keys: DigestKeys
) -> Surroundings:
    """Returns the surroundings in this program, as far as they are declared, or recorded by name.

    Args:
        guards: of the function, then of the store; the first configuration counts.

    Raises:
        NeedsAttention: the function that gives the configuration fails. StoreUnavailable: it says
            so, or versions cannot be found out now.
    """
    before = known or Surroundings()
    config: Any = next((one.config for one in guards if one.config is not None), None)
    try:
        if callable(config):
            config = config()
        if config is not None:
            config = take(mapping(config, "config= must be a mapping of names"), root="config")
        whole = config_hash(config)
    except StoreUnavailable:
        raise
    except Exception as error:
        raise NeedsAttention(
            f"the configuration of its guards cannot be read: {type(error).__name__}: {error}",
            hint="put the function right that is given as Guards(config=…), then resume the run",
        ) from error
    variables = {name: os.environ.get(name) for one in guards for name in one.environment}
    names = dict.fromkeys(name for one in guards for name in one.dependencies)
    return Surroundings(
        config=whole or "",
        parts=_digests(_named(config or {}), before.parts, keys),
        dependencies={name: loaded_version(name) or "" for name in names | before.dependencies},
        environment=_digests(variables, before.environment, keys),
    )


def _named(config: Mapping[Any, Any]) -> Mapping[str, Any]:
    """Returns the values of a configuration if they can be told apart by name in a record."""
    if len(config) > NAMES_MAX:
        return {}
    usual = all(isinstance(name, str) and len(name) <= NAME_MAX for name in config)
    return config if usual else {}


def _digests(
    values: Mapping[str, Any], recorded: Mapping[str, str], keys: DigestKeys
) -> dict[str, str]:
    """Returns digests of values, made with the store's newest key; or with that of what is recorded
    under the same name, so that the two can be compared."""
    found = {str(name): digest(one) for name, one in values.items() if one is not None}
    said = keys.seal(found, keys.newest) if keys.newest else dict(found)
    for name in found:
        if recorded.get(name):
            with suppress(NeedsAttention):  # that key is not here: the difference says so
                said |= keys.as_recorded({name: found[name]}, recorded)
    return said | {str(name): "" for name, one in values.items() if one is None}


# -- what is recorded ------------------------------------------------------------------------------


class KnownSurroundings(Struct):
    """The surroundings of a run as its log has them. Its records come in the log's order.

    Attributes:
        executed: those that it was last executed in, and that checkpoints of it named since; None:
            it says nothing.
        accepted: those for which it stopped, and then a person resumed it.
        on_change: what was to be done about a change in the last execution.
    """

    executed: Surroundings | None = None
    accepted: Surroundings | None = None
    on_change: str = ""
    _stopped: Surroundings | None = None

    def note(self, record: Record) -> None:
        """Notes a record of the run; those of other kinds say nothing."""
        match record:
            case Guarded():
                self.executed, self.on_change = _with(self.executed, record.now), record.on_change
                self.accepted = self._stopped = None
            case Stopped():
                self._stopped = record.now
            case Pending(accepts=True) if self._stopped is not None:
                self.accepted = _with(self.executed, self._stopped)
            case CheckpointRecord() if record.config or record.dependencies:
                # That of the guards is another mapping, maybe: it says more than a checkpoint's.
                config = "" if self.executed and self.executed.config else record.config or ""
                named = Surroundings(config=config, dependencies=dict(record.dependencies or {}))
                self.executed = _with(self.executed, named)

    def changes(self, now: Surroundings) -> list[Change]:
        """Returns what is otherwise now; what only one of the two names is no difference. Nothing
        is, too, if it is all as a person accepted it."""
        if self.executed is None or (self.accepted and not _differences(self.accepted, now)):
            return []
        return _differences(self.executed, now)

    def adds(self, now: Surroundings) -> bool:
        """Returns True if an execution in these surroundings says anything that is not recorded."""
        return self.accepted is not None or _with(self.executed, now) != (
            self.executed or Surroundings()
        )

    def carried(self, run: str) -> Guarded | None:
        """Returns the record that the run's next turn begins with: who resumes it reads no further
        back. None if there is nothing to say."""
        if self.executed is None:
            return None
        return Guarded(run=run, now=self.executed, on_change=self.on_change)


def _with(known: Surroundings | None, later: Surroundings) -> Surroundings:
    if known is None:
        return later
    same = not later.config or later.config == known.config
    return Surroundings(
        config=later.config or known.config,
        parts=later.parts or (known.parts if same else {}),
        dependencies=known.dependencies | later.dependencies,
        environment=known.environment | later.environment,
    )


def _differences(known: Surroundings, now: Surroundings) -> list[Change]:
    found: list[Change] = []
    if known.config and now.config and known.config != now.config:
        parts = dict.fromkeys((*known.parts, *now.parts)) if known.parts and now.parts else {}
        pairs = [(name, known.parts.get(name, ""), now.parts.get(name, "")) for name in parts]
        found = [
            (f"configuration {name!r}", _said(one, other, "none"), other or "none")
            for name, one, other in pairs
            if one != other
        ] or [("configuration", known.config, now.config)]
    for what, before, after, absent in (
        ("version of {}", known.dependencies, now.dependencies, "not installed"),
        ("environment variable {}", known.environment, now.environment, "not set"),
    ):
        for name, recorded in before.items():
            if name in after and after[name] != recorded:
                said = _said(recorded, after[name], absent)
                found.append((what.format(name), said, after[name] or absent))
    return found


def _said(recorded: str, found: str, absent: str) -> str:
    key = key_of(recorded)
    if key and found and key != key_of(found):
        return f"a digest by key {key}, which this store was not opened with"
    return recorded or absent
