"""Events of a worker, for people and logs."""

from __future__ import annotations

from msgspec import Struct

from perdure.public_data import PublicData


class WorkerEvent(PublicData, Struct, frozen=True):
    """Something that a worker did, for people and logs.

    Attributes:
        kind: of the worker itself ``ready``, ``unavailable``, ``available``, ``draining``,
            ``stopped``; of a run ``started``, ``resumed``, then ``done``, ``failed``,
            ``cancelled``, ``waiting``, ``needs_attention``, or ``left`` (it drained),
            ``lost`` (another executor took it over), ``trouble`` (tried again; each said once).
        run: the run's id, for an event of a run.
        words: further details.
        seconds: the time that this worker had the run.
    """

    kind: str
    run: str = ""
    words: str = ""
    seconds: float = 0.0
