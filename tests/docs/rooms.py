"""The file-by-file part of docs/architecture.md, made of what each file says of itself.

``python -m tests.docs.rooms`` writes it anew.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.source_tree import ROOT, SOURCE

PAGE = ROOT / "docs" / "architecture.md"
MARKS = "<!-- made by tests/docs/rooms.py -->", "<!-- end of what is made -->"


def first_words(path: Path) -> str:
    """The first sentence of a module's docstring."""
    said = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    words = " ".join(said.split("\n\n")[0].split())
    return re.split(r"(?<=[.!?]) ", words)[0].replace("|", "\\|")


def rooms() -> str:
    """One heading a folder, one line a file."""
    lines: list[str] = []
    package = SOURCE / "perdure"
    for folder in sorted({path.parent for path in package.rglob("*.py")}):
        name = folder.relative_to(package).as_posix()
        files = [path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]
        if name == ".":
            lines += [
                "### `perdure/`",
                "",
                "What people import, and what every layer speaks of.",
                "",
            ]
        else:
            lines += [f"### `{name}/`", "", first_words(folder / "__init__.py"), ""]
        if files:
            lines += ["| file | |", "| --- | --- |"]
            lines += [f"| `{path.name}` | {first_words(path)} |" for path in files] + [""]
    return "\n".join(lines)


def page() -> str:
    """The page as it has to be."""
    begin, end = MARKS
    before, _, rest = PAGE.read_text("utf-8").partition(begin)
    return f"{before}{begin}\n\n{rooms()}\n{end}{rest.partition(end)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
