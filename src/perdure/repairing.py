"""`perdure.repair`: rebuilds a store's page checksums."""

from __future__ import annotations

import os

from perdure.core.arguments.checks import flag
from perdure.model import Rebuilt, Verified
from perdure.storage.locate import rebuild_checksums
from perdure.verification.repair_checks import Proof


def repair(url: str | os.PathLike[str], *, take_incomplete: bool = False) -> list[Verified]:
    """Restores the page checksums of a SQLite store, after another SQLite moved pages without them.

    Every log is verified first; if one fails, or a page that fails its checksum has content that no
    log proves, nothing is changed. Damaged snapshots, which are a cache of the log, are removed. No
    other process may have the store open.

    Args:
        take_incomplete: rebuilds them even if commits are damaged, e.g. by a flipped bit: each is
            named in `Verified.damages` of its agent, which works up to `Verified.before`; all
            others are whole. Unproved content is named, too: messages in the inbox, the last header
            of a log, the requests of keys. The old file is kept beside it, as ``-damaged``. Lost
            rows of agents, branches and checkpoints are restored from the agent's log. Of a damaged
            ``-wal`` everything is taken that is proved; it is kept, too, and a warning is logged.
            If commits are lost with it, their agents say so. Other differences from a log are
            still refused.

    Returns:
        The results, agent by agent.

    Raises:
        Corrupt: the data itself is damaged: restore the store from a copy. Or it may be: `damages`
            are the unproved parts.
        StoreUnavailable: another process has it open.
        NotFound: it is not there.
    """
    return repair_store(url, take_incomplete=take_incomplete)[0]


def repair_store(
    url: str | os.PathLike[str], *, take_incomplete: bool
) -> tuple[list[Verified], Rebuilt]:
    """Does the work of `repair`; also returns what was done to the files."""
    proof = Proof(take_incomplete=flag(take_incomplete, "take_incomplete="))
    return proof.agents, rebuild_checksums(url, proof, take_incomplete=take_incomplete)
