"""`perdure.repair`: a store's page checksums, made anew."""

from __future__ import annotations

import os

from perdure.core.arguments.checks import flag
from perdure.model import Verified
from perdure.storage.locate import rebuild_checksums
from perdure.verification.repair_checks import Proof


def repair(url: str | os.PathLike[str], *, take_incomplete: bool = False) -> list[Verified]:
    """Give a SQLite store its page checksums back, after another SQLite moved pages without them.

    Every log is verified first; if one does not hold, or a page that fails its checksum has what no
    log proves, nothing is changed. Damaged snapshots, which are a cache of the log, are removed.
    Nobody else may have the store open.

    Args:
        take_incomplete: rebuild them also where commits are damaged, as by a flipped bit: each is
            named in `Verified.damages` of its agent, which works up to `Verified.before`, and all
            others are whole. So is what nothing proves: messages in the inbox, the last header of
            a log, what keys were used for. The file as it was is kept beside it, as ``-damaged``.
            Rows of agents, and of branches and checkpoints, that were lost are put back as the
            agent's log has them. What else a log says otherwise is refused still.

    Returns:
        What was verified, agent by agent.

    Raises:
        Corrupt: the data itself is damaged: restore the store from a copy. Or it may be: `damages`
            are what nothing proves, one by one.
        StoreUnavailable: another process has it open.
        NotFound: it is not there.
    """
    return repair_store(url, take_incomplete=take_incomplete)[0]


def repair_store(
    url: str | os.PathLike[str], *, take_incomplete: bool
) -> tuple[list[Verified], str]:
    """As `repair`; and the path of the copy that was kept, empty where none was."""
    proof = Proof(take_incomplete=flag(take_incomplete, "take_incomplete="))
    copy = rebuild_checksums(url, proof, take_incomplete=take_incomplete)
    return proof.agents, copy
