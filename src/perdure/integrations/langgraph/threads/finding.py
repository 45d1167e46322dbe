"""Resolution of a config to a checkpoint: one by its id, or the last one that is not removed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from perdure.integrations.langgraph.threads.log_view import Tip, View
from perdure.integrations.langgraph.threads.removed import is_removed
from perdure.integrations.langgraph.threads.requests import Found
from perdure.integrations.langgraph.values import thread_names


def find_any(views: Iterable[View], namespace: str, checkpoint_id: str) -> Found | None:
    """A checkpoint of a thread with these views, removed or not, as it was put last."""
    for view in views:
        seq = view.find(namespace, checkpoint_id)
        if seq is not None:
            return Found(view, seq, checkpoint_id)
    return None


def find_at_end(view: View, namespace: str, checkpoint_id: str) -> Found | None:
    """A checkpoint as it was put last, if it ends a line."""
    tips = [tip for tip in view.tips(namespace) if tip.at and tip.id == checkpoint_id]
    if not tips:
        return None
    tip = max(tips, key=lambda one: one.at)
    return put_last(Found(view, tip.at, checkpoint_id, tip), namespace)


def put_last(found: Found, namespace: str) -> Found:
    """Returns the end of a line as it was put last. After a rollback it may have been put again, on
    another line; and so may one that ends its line only because others are removed."""
    view = found.view
    if found.tip is not None and not view.past().moved:
        return found
    place = thread_names.place_of(namespace, found.id)
    seq = (view.telling().put_of(place) if view.end else None) or view.find(namespace, found.id)
    if seq is None or seq == found.seq:
        return found
    tip = next((one for one in view.tips(namespace) if one.at == seq), None)
    return Found(view, seq, found.id, tip)


def open_at(tips: Iterable[Tip], checkpoint_id: str | None) -> Tip | None:
    """The line that ends with a checkpoint, and can go on from it."""
    return next((one for one in tips if one.at and one.open and one.id == checkpoint_id), None)


def latest(views: Iterable[View], removals: dict[str, Any], namespace: str) -> Found | None:
    """Returns the checkpoint with the greatest id of those that end the namespace's lines."""
    best: Found | None = None
    for view in views:
        for tip in view.tips(namespace):
            found = standing(view, removals, namespace, tip)
            if found is None or (best is not None and found.id <= best.id):
                continue
            found = put_last(found, namespace)
            if not is_removed(removals, view.log, namespace, found.seq):
                best = found
    return best


def standing(view: View, removals: dict[str, Any], namespace: str, tip: Tip) -> Found | None:
    """The last checkpoint of a line that is not removed."""
    if tip.at and not is_removed(removals, view.log, namespace, tip.at):
        return Found(view, tip.at, tip.id, tip)
    seq = view.commit(tip.at).parent if tip.at else 0
    while seq:
        one = view.tip_at(namespace, tip.branch, seq)
        if not one.at:
            return None
        gone = view.is_trimmed(one.at) or is_removed(removals, view.log, namespace, one.at)
        if not gone:
            return Found(view, one.at, one.id)
        seq = view.commit(one.at).parent
    return None
