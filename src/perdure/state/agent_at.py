"""An agent as it was at an earlier commit."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Generic, TypeVar

from perdure.core.schema.schema import Schema
from perdure.core.values.plain_values import Plain, copy
from perdure.errors import SchemaError
from perdure.model import Commit
from perdure.state.checkpoints import Mismatch
from perdure.storage.log.reader import LogReader

T = TypeVar("T")


class AgentAt(Generic[T]):
    """An earlier state of the agent, read-only. Changing `state` changes nothing else."""

    def __init__(self, reader: LogReader, schema: Schema[T], seq: int) -> None:
        self.seq = seq
        self.mismatches: list[Mismatch] = []
        self._schema = schema
        self._folded = reader.fold(seq)
        self._reader = reader
        self._state: Any = None
        self._commit: Commit | None = None

    @property
    def plain(self) -> Plain:
        """The state as plain data, as it was written, before any migration."""
        return self._folded.state

    @property
    def state(self) -> T:
        """The typed state, with schema migrations applied in memory."""
        if self._state is None:
            folded = self._folded
            version = folded.schema_version
            plain = self._schema.migrate(copy(folded.state), version)
            self._state = self._schema.build_stored(plain, self._reader.name, self.seq, version)
        return self._state  # type: ignore[no-any-return]

    @property
    def commit(self) -> Commit:
        if self._commit is None:
            self._commit = self._reader.peek(self.seq)  # its state could be read
        return self._commit

    def read(self) -> None:
        """Reads and builds now what the properties show."""
        _ = self.commit
        with suppress(SchemaError):  # whoever asks for the typed state hears of it
            _ = self.state
