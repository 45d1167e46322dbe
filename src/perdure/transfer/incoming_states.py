"""The states of a whole incoming log: each is computed once, on every branch.

A log whose links and digests hold may still contain deltas that do not fit. On a branch that nobody
reads, only `verify` would find that, after the log was taken in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from perdure.core.format import chain, remains
from perdure.core.values import ops
from perdure.core.values.ops import OpError
from perdure.core.values.plain_values import Plain, copy
from perdure.errors import Corrupt
from perdure.missing import MISSING
from perdure.model import Commit
from perdure.storage.retention import last_standing
from perdure.system import shell

Stored = Callable[[int], tuple[Commit, bytes]]
"""A commit of the log by its seq, and its payload as it is stored."""


def states(parents: Sequence[int], stored: Stored) -> Iterator[tuple[int, Plain]]:
    """Yields each seq with its state, which belongs to the caller until the next one is asked for;
    MISSING if retention removed it. Linear in the log, except for a copy of the state at each fork.

    Args:
        parents: of the commits 1, 2, …: the seq whose state each changes; 0: none.

    Raises:
        Corrupt: a commit does not fit, by agent and seq.
    """
    children, sizes = _tree(parents)
    forks: list[tuple[Plain, list[int]]] = [(None, children[0])]
    while forks:
        before, behind = forks[-1]
        # The smallest part first, and the largest with the state itself, so that few copies are
        # held.
        seq = behind.pop()
        if not behind:
            forks.pop()
        elif before is not MISSING:
            before = copy(before)
        state = _apply(before, *stored(seq))
        yield seq, state
        if seq in children:
            forks.append((state, sorted(children[seq], key=sizes.__getitem__, reverse=True)))


def _tree(parents: Sequence[int]) -> tuple[dict[int, list[int]], list[int]]:
    """Returns the commits that change each commit's state, and the number of all commits behind
    each."""
    children: dict[int, list[int]] = {0: []}
    sizes = [1] * (len(parents) + 1)
    for seq in range(len(parents), 0, -1):  # a parent is always before
        children.setdefault(parents[seq - 1], []).append(seq)
        sizes[parents[seq - 1]] += sizes[seq]
    return children, sizes


def _apply(state: Plain, commit: Commit, payload: bytes) -> Plain:
    target = f"agent {commit.agent!r}, commit {commit.seq}"
    if commit.trimmed:
        return MISSING
    if payload.startswith(remains.MAGIC):
        return remains.state_of(payload, target)
    if state is MISSING:
        return MISSING
    try:
        return ops.fold(state, commit.delta)
    except OpError as error:
        until = shell.perdure("export", commit.agent, until=commit.seq - 1)
        hint = (
            f"nothing was written; `{until}`, run where it comes from, exports what was before it"
        )
        raise Corrupt(str(error), target=target, hint=hint, seq=commit.seq) from error


def check_gone(
    seqs: Sequence[int], trimmed: Sequence[int], word: int, commit: Callable[[int], Commit]
) -> None:
    """Checks that everything missing from a log is what it says was removed (I7).

    Args:
        seqs: the commits without a state.
        trimmed: the commits without a payload.
        word: seq of the last commit of the branch `@retention`; 0: there is none.

    Raises:
        Corrupt: something else is missing.
    """
    trim = last_standing(word, commit, lambda first, last: map(commit, range(first, last + 1)))
    for seq in trimmed:
        if trim is None or not trim.has_removed(seq):
            raise _gone(
                commit(seq), "its payload is gone, but the log does not say that it was removed"
            )
    for seq in seqs:
        if trim is None or trim.keeps_state(seq):
            raise _gone(
                commit(seq), "parts of its state are gone, but the log says that it was kept"
            )


def _gone(commit: Commit, problem: str) -> Corrupt:
    return Corrupt(problem, target=f"agent {commit.agent!r}, commit {commit.seq}", hint=chain.HINT)
