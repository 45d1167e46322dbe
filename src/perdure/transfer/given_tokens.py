"""The tokens that a store has given, which its successor must not give again (I4)."""

from __future__ import annotations

from perdure.model import AgentInfo
from perdure.storage.appending import Ref
from perdure.storage.capabilities import Backend, RunQuery, Shipment
from perdure.transfer.living_agents import PAGE, living

NUMBERS_APART = 1 << 40
EPOCHS_APART = 1 << 20
"""The gap between the known numbers of messages, or fencing tokens, and the new ones: the other
store may have given more that nobody here heard of."""


def raise_tokens(target: Backend, source: Backend | None) -> None:
    """Raises the target's fencing tokens and message numbers above those of the source (I4).

    Args:
        source: a closed store, so the tokens that it gave are known; None: raises far above the
            known ones.
    """
    numbers = [last_number(target), *(run.seen for run in target.runs(RunQuery(unfinished=True)))]
    if source is not None:
        numbers.append(last_number(source))
    target.ship(Shipment(number_min=max(numbers) + NUMBERS_APART))
    epochs: list[tuple[str, int, str, int]] = []
    for info in living(target):
        epochs += epochs_of(target, info, source)
        if len(epochs) >= PAGE:
            target.ship(Shipment(epochs=epochs))
            epochs = []
    target.ship(Shipment(epochs=epochs))


def last_number(backend: Backend) -> int:
    """Returns the largest known number of a store's messages. It may have been raised before: a
    store that was promoted, or moved to, gives numbers far above those that came."""
    last, cursor = 0, ""
    while True:
        part = backend.mail(cursor, limit=PAGE)
        last = max([last, part.last, *(message.no for message in part.messages)])
        if part.last or not part.messages:
            return last
        cursor = part.cursor


def epochs_of(
    target: Backend, info: AgentInfo, source: Backend | None
) -> list[tuple[str, int, str, int]]:
    """Returns the minimal epochs of an agent of the target."""
    there = source.agent(info.name, info.incarnation) if source is not None else None
    refs: list[Ref] = source.refs(there.no) if source and there else target.refs(info.no)
    more = 0 if there is not None else EPOCHS_APART
    return [
        (info.name, info.incarnation, ref.name, ref.epoch + more)
        for ref in refs
        if ref.kind == "branch" and not ref.deleted
    ]
