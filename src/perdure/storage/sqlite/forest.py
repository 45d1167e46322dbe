"""The trees of the schema that look-ups descend, and how each is recognised."""

from __future__ import annotations

from msgspec import Struct


class Tree(Struct, frozen=True):
    """The properties by which a tree is recognised.

    Attributes:
        table: the table that it belongs to.
        columns: the number of columns of its keys; for a table, 1: the row's id.
        shape: the shape of its rows, see `Page.shape`.
        lacks: an SQL query that finds, among a few rows, one that the tree should have and lacks.
            For a tree of one page, which no other page bounds.
        whose: for an index of two columns, the query for a value of the table's row that never
            changes, by the row's id.
        words: or all possible values of its first column.
    """

    table: str
    columns: int
    shape: str
    lacks: str
    whose: str = ""
    words: frozenset[str] = frozenset()


STATUSES = frozenset({"pending", "running", "waiting", "needs_attention"})
KINDS = frozenset({"start", "signal", "answer", "cancel"})
AGENTS, RUNS, INBOX = (f"sqlite_autoindex_{table}_1" for table in ("agents", "runs", "inbox"))

_UNFINISHED = "status IN ('pending', 'running', 'waiting', 'needs_attention')"
"""Written as the indexes have it, so that they serve."""

_LATEST_RUNS = (
    "(SELECT place, agent, status FROM (SELECT place, agent, status FROM runs NOT INDEXED "
    f"ORDER BY place DESC LIMIT 64) WHERE {_UNFINISHED})"
)
_OF_MESSAGE = "t.run = s.run AND t.kind = s.kind AND t.name = s.name AND t.key = s.key"


def _lacks(rows: str, columns: str, order: str, tree: str, where: str) -> str:
    """Returns a query for rows `s` of a source, at both of its ends, that a tree `t` lacks."""
    ends = (
        f"SELECT * FROM (SELECT {columns} FROM {rows} ORDER BY {order}{way} LIMIT 8)"
        for way in ("", " DESC")
    )
    return (
        f"SELECT 1 FROM ({' UNION ALL '.join(ends)}) s "
        f"WHERE NOT EXISTS (SELECT 1 FROM {tree} WHERE {where}) LIMIT 1"
    )


KEYED = (
    "SELECT a.no, c.header FROM (SELECT DISTINCT (SELECT min(no) FROM agents WHERE deleted = 0 "
    "AND no > (SELECT max(no) FROM agents) * value / 8) AS no FROM json_each('[0,1,2,3,4,5,6,7]') "
    "UNION SELECT max(no) FROM agents WHERE deleted = 0) a "
    "JOIN commits c ON c.id BETWEEN a.no << 36 AND (a.no << 36) + 4 "
    "WHERE instr(c.header, x'a16b')"
)
"""Commits that may have a key, of agents here and there: of keys nothing else tells."""

TREES = {
    AGENTS: Tree(
        "agents",
        2,
        "tii",
        _lacks(
            "agents NOT INDEXED",
            "name, incarnation",
            "no",
            f"agents t INDEXED BY {AGENTS}",
            "t.name = s.name AND t.incarnation = s.incarnation",
        ),
    ),
    "agents": Tree(
        "agents",
        1,
        "ntii",
        _lacks(f"agents INDEXED BY {AGENTS}", "no", "name", "agents t NOT INDEXED", "t.no = s.no"),
    ),
    "commits": Tree(
        "commits",
        1,
        "nbb",
        # Not of one agent: a reader of a log compares its end with its branches.
        "SELECT 1 FROM agents WHERE deleted < 2 AND NOT EXISTS (SELECT 1 FROM commits) LIMIT 1",
    ),
    "refs": Tree(
        "refs",
        2,
        "ittiii[in][tn][bn]",
        _lacks("agents WHERE deleted < 2", "no", "no", "refs t", "t.agent_no = s.no"),
    ),
    "keys": Tree("keys", 2, "itib", KEYED),
    RUNS: Tree(
        "runs",
        2,
        "ti",
        _lacks("runs NOT INDEXED", "id", "place", f"runs t INDEXED BY {RUNS}", "t.id = s.id"),
        whose="SELECT id FROM runs WHERE place = ?",
    ),
    "runs_by_agent": Tree(
        "runs",
        2,
        "ti",
        _lacks(
            "runs NOT INDEXED",
            "agent, place",
            "place",
            "runs t INDEXED BY runs_by_agent",
            "t.agent = s.agent AND t.place = s.place",
        ),
        whose="SELECT agent FROM runs WHERE place = ?",
    ),
    "runs_unfinished": Tree(
        "runs",
        2,
        "ti",
        _lacks(
            _LATEST_RUNS,
            "status, place",
            "place",
            "runs t INDEXED BY runs_unfinished",
            f"t.status = s.status AND t.place = s.place AND t.{_UNFINISHED}",
        ),
        words=STATUSES,
    ),
    "runs_unfinished_by_agent": Tree(
        "runs",
        2,
        "ti",
        _lacks(
            _LATEST_RUNS,
            "agent, place",
            "place",
            "runs t INDEXED BY runs_unfinished_by_agent",
            f"t.agent = s.agent AND t.place = s.place AND t.{_UNFINISHED}",
        ),
        whose="SELECT agent FROM runs WHERE place = ?",
    ),
    "runs_by_timer": Tree(
        "runs",
        2,
        "ii",
        _lacks(
            "(SELECT place, wake_at FROM (SELECT place, status, wake_at FROM runs NOT INDEXED "
            "ORDER BY place DESC LIMIT 64) WHERE status = 'waiting' AND wake_at > 0)",
            "wake_at, place",
            "place",
            "runs t INDEXED BY runs_by_timer",
            "t.wake_at = s.wake_at AND t.place = s.place AND t.status = 'waiting' "
            "AND t.wake_at > 0",
        ),
    ),
    "runs": Tree(
        "runs",
        1,
        "nttittttiitb[tn]itiitttiii",
        _lacks(f"runs INDEXED BY {RUNS}", "place", "id", "runs t NOT INDEXED", "t.place = s.place"),
    ),
    INBOX: Tree(
        "inbox",
        4,
        "tttti",
        _lacks(
            "inbox NOT INDEXED",
            "run, kind, name, key",
            "no",
            f"inbox t INDEXED BY {INBOX}",
            _OF_MESSAGE,
        ),
    ),
    "inbox": Tree(
        "inbox",
        1,
        "nttttt[bn]tii",
        _lacks(
            f"inbox INDEXED BY {INBOX}",
            "no",
            "run, kind, name, key",
            "inbox t NOT INDEXED",
            "t.no = s.no",
        ),
    ),
    "inbox_by_agent": Tree(
        "inbox",
        2,
        "ti",
        _lacks(
            "inbox NOT INDEXED",
            "agent, no",
            "no",
            "inbox t INDEXED BY inbox_by_agent",
            "t.agent = s.agent AND t.no = s.no",
        ),
        whose="SELECT agent FROM inbox WHERE no = ?",
    ),
    "inbox_by_run": Tree(
        "inbox",
        2,
        "ti",
        _lacks(
            "inbox INDEXED BY inbox_by_kind WHERE consumed = 0",
            "run, no",
            "kind, no",
            "inbox t INDEXED BY inbox_by_run",
            "t.run = s.run AND t.no = s.no AND t.consumed = 0",
        ),
        whose="SELECT run FROM inbox WHERE no = ?",
    ),
    "inbox_by_kind": Tree(
        "inbox",
        2,
        "ti",
        _lacks(
            "inbox INDEXED BY inbox_by_run WHERE consumed = 0",
            "kind, no",
            "run, no",
            "inbox t INDEXED BY inbox_by_kind",
            "t.kind = s.kind AND t.no = s.no AND t.consumed = 0",
        ),
        words=KINDS,
    ),
}
