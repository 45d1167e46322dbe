"""Tables of things with names: a person pastes these, so each stands in one piece."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from perdure.cli.terminal import Grid, Screen, table, text

INDENT, BETWEEN = 4, 2
NEED_MAX = 20
"""The most of a column, in characters, that a name leaves on its line; a longer cell is folded."""


class NamedRows:
    """A table whose first column has the names. If they leave too little of the screen to the
    others, each stands on a line of its own, above the rest of its row. In a pipe every row is one
    line, and nothing is cut.

    Args:
        right: the columns of numbers.
    """

    def __init__(self, *columns: str, right: Iterable[str] = ()) -> None:
        self._columns = columns
        self._right = tuple(right)
        self._rows: list[tuple[Text, list[Text]]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, name: str | Text, *cells: str | Text) -> None:
        self._rows.append((_text(name), [_text(one) for one in cells]))

    def on(self, console: Screen, *, drawn: bool = False) -> RenderableType:
        """Returns the table as this console shows it.

        Args:
            drawn: it is drawn again and again, which cuts lines that are longer than the screen.
        """
        rows = self._rows
        widths = [max((row[1][at].cell_len for row in rows), default=0) for at in self._places]
        heads = [cell_len(head) for head in self._columns]
        name = max([heads[0], *(row[0].cell_len for row in rows)])
        wide = [max(min(a, NEED_MAX), b) for a, b in zip(widths, heads[1:], strict=True)]
        needed = sum(BETWEEN + one for one in wide)
        if not console.is_terminal or name + needed <= console.width:
            whole = self._table(self._columns)
            whole.columns[0].no_wrap = True
            for one, cells in rows:
                whole.add_row(one, *cells)
            return whole
        # Each row is a table of its own: their columns are as wide as the widest cell of all.
        shown: list[RenderableType] = [text((self._columns[0], "dim")), self._below(wide, [])]
        for one, cells in rows:
            name_line = one.copy()
            if drawn:
                name_line.no_wrap, name_line.overflow = False, "fold"
            shown += [name_line, self._below(wide, cells)]
        return Group(*shown)

    def _below(self, widths: Sequence[int], cells: Sequence[Text]) -> RenderableType:
        """Returns a row without its name; the heads if it has no cells."""
        rest = self._table(self._columns[1:])
        rest.show_header = not cells
        for column, width in zip(rest.columns[:-1], widths, strict=False):
            column.width = width
        if cells:
            rest.add_row(*cells)
        return Padding(rest, (0, 0, 0, INDENT))

    @property
    def _places(self) -> Sequence[int]:
        return range(len(self._columns) - 1)

    def _table(self, columns: Sequence[str]) -> Grid:
        return table(*columns, right=self._right)


def _text(cell: str | Text) -> Text:
    return cell if isinstance(cell, Text) else text(cell)
