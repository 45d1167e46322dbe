"""Checks before a statement's answer is believed: that there is nothing, or no more.

They check rows, too: SQLite takes whatever comes next on a row's page for that row.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import apsw
from msgspec import Struct

from perdure.storage.sqlite.btree import Key, column
from perdure.storage.sqlite.faults import MisplacedError
from perdure.storage.sqlite.forest import AGENTS, INBOX, RUNS, TREES
from perdure.storage.sqlite.trees import FIRST, LAST, Trees

Rows = list[Any]


class Connection(apsw.Connection):
    """A connection to a store's file.

    Attributes:
        trees: None disables the checks, as for a repair.
        is_old: the file is seen as if it were of a later format.
        refuse_changed: of one that may only look: raises StoreUnavailable once somebody has written
            to the store. SQLite believes then that it never changes.
    """

    trees: Trees | None = None
    is_old = False
    refuse_changed: Callable[[], None] | None = None


class One(Struct, frozen=True):
    """The guard of a statement that looks for one row.

    Attributes:
        tree: the tree in which it looks.
        columns: the number of its first values that are the key there.
        echo: columns of the row that repeat values of the query, with the numbers of those values.
    """

    tree: str
    columns: int
    echo: tuple[tuple[int, int], ...] = ()

    @property
    def each(self) -> bool:
        """True if rows are checked, too."""
        return bool(self.echo)

    def check(self, db: apsw.Connection, trees: Trees, values: Any, rows: Rows) -> None:
        """Raises MisplacedError if a page on the way belongs elsewhere."""
        if not rows:
            trees.prove(db, self.tree, tuple(map(column, values[: self.columns])))
        for place, value in self.echo:
            for row in rows:
                if row[place] != values[value]:
                    raise MisplacedError


class All(Struct, frozen=True):
    """The guard of a statement that looks for all rows, or all of one agent, run or kind.

    Attributes:
        tree: the tree that they come from.
        whose: the name or number of the value that begins its keys, and the column of the rows that
            repeats it.
        also: other trees that they come from.
        ordered: the column that sorts them, in the order of the tree; `down`: in reverse.
    """

    tree: str
    whose: tuple[Any, int] | None = None
    ordered: int | None = None
    down: bool = False
    also: tuple[str, ...] = ()

    @property
    def each(self) -> bool:
        return True

    def check(self, db: apsw.Connection, trees: Trees, values: Any, rows: Rows) -> None:
        """See `One.check`."""
        prefix: Key = ()
        if self.whose is not None:
            value = values[self.whose[0]]
            prefix = (column(value),)
            if any(row[self.whose[1]] != value for row in rows):
                raise MisplacedError
        trees.prove(db, self.tree, prefix or FIRST)
        trees.prove(db, self.tree, prefix + LAST)
        after = values.get("after") if type(values) is dict else 0
        if after:
            trees.prove(db, self.tree, (*prefix, column(after), *LAST))
        for tree in self.also:
            trees.prove(db, tree, FIRST)
            trees.prove(db, tree, LAST)
        table = TREES[self.tree].table
        if table != self.tree:  # the rows are there, too
            trees.prove(db, table, FIRST)
        if self.ordered is not None and rows:
            keys = [row[self.ordered] for row in rows]
            _check_order(keys[::-1] if self.down else keys)
            trees.prove(db, self.tree, (*prefix, column(keys[-1]), *LAST))


class Log(Struct, frozen=True):
    """The guard of a statement that looks for commits from one key to another, which are adjacent.

    Attributes:
        each: True if it asks for all of them, not for the last one.
    """

    each: bool = True
    down: bool = False

    def check(self, db: apsw.Connection, trees: Trees, values: Any, rows: Rows) -> None:
        """See `One.check`."""
        first, last, *limit = values
        near, far = (last, first) if self.down else (first, last)
        if not rows or rows[0][0] != near:
            trees.prove(db, "commits", (column(near),))
        if not rows:
            trees.prove(db, "commits", (column(far),))
        elif rows[-1][0] != far and [len(rows)] != limit:
            trees.prove(db, "commits", (column(far),))
            trees.prove(db, "commits", (column(rows[-1][0] + (-1 if self.down else 1)),))


def _check_order(keys: list[Any]) -> None:
    try:
        if all(a < b for a, b in pairwise(keys)):
            return
    except TypeError:
        pass
    raise MisplacedError


def check_missing(db: apsw.Connection, tree: str, *values: Any) -> None:
    """Checks that there is no row of a key, where SQLite found none.

    Raises:
        MisplacedError: that cannot be told.
    """
    trees: Trees | None = getattr(db, "trees", None)
    if trees is not None:
        trees.prove(db, tree, tuple(map(column, values)))


_PLACE, _NUMBER = 22, 8
"""Of a run, behind all that it says; and of a message."""

GUARDS: dict[str, One | All | Log] = {
    "find_agent": One(AGENTS, 1, echo=((1, 0), (4, 0))),
    "list_agents": All(AGENTS, ordered=1),
    "list_agents_alone": All(AGENTS, ordered=1),
    "list_incarnations": All("agents", ordered=0),
    "find_numbered": One("agents", 1),
    "find_deleted": One("agents", 1),
    "read_up": Log(),
    "read_down": Log(down=True),
    "last_place": Log(each=False, down=True),
    "find_header": One("commits", 1),
    "find_ref": One("refs", 2),
    "list_refs": All("refs", whose=(0, 8), ordered=0),
    "find_key": One("keys", 2),
    "find_run": One(RUNS, 1, echo=((0, 0),)),
    "find_run_place": One(RUNS, 1),
    "list_runs_up": All("runs", ordered=_PLACE),
    "list_runs_down": All("runs", ordered=_PLACE, down=True),
    "list_agents_runs_up": All("runs_by_agent", whose=("agent", 1), ordered=_PLACE),
    "list_agents_runs_down": All("runs_by_agent", whose=("agent", 1), ordered=_PLACE, down=True),
    "list_unfinished_up": All("runs_unfinished"),
    "list_unfinished_down": All("runs_unfinished"),
    "list_ready": All("runs_unfinished", also=("inbox_by_kind", "runs_by_timer")),
    "list_running": All("runs_unfinished"),
    "list_agents_unfinished": All("runs_unfinished_by_agent", whose=("agent", 1)),
    "list_unfinished_of_agent": All("runs_unfinished_by_agent", whose=(0, 1), ordered=_PLACE),
    "next_timer": All("runs_by_timer"),
    "find_message": One(INBOX, 4, echo=((0, 0), (2, 1), (3, 2), (4, 3))),
    "find_start": One("inbox_by_run", 1),
    "list_mail": All("inbox", ordered=_NUMBER),
}
"""By the statement's name."""

for _way in ("up", "down"):
    _down = _way == "down"
    GUARDS |= {
        f"list_messages_{_way}": All("inbox", ordered=_NUMBER, down=_down),
        f"list_messages_of_run_{_way}": All("inbox_by_run", ("run", 0), _NUMBER, _down),
        f"list_messages_of_agent_{_way}": All("inbox_by_agent", ("agent", 1), _NUMBER, _down),
        f"list_messages_of_kind_{_way}": All("inbox_by_kind", ("kind", 2), _NUMBER, _down),
    }

EACH = {name: guard for name, guard in GUARDS.items() if guard.each}
"""Those that look at rows, too."""
