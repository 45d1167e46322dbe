"""docs/reference/ has every public name, as its docstring has it, and shows each in use."""

from __future__ import annotations

import re

import perdure
from tests.docs.reference import FOLDER, PAGES, entries, examples, exported, pages

TWIN = re.compile(r"^As `|\b[Ss]ee `")


def test_the_pages_say_what_the_docstrings_say() -> None:
    made = pages()
    assert {path.name for path in FOLDER.iterdir()} == {path.name for path in made}
    for path, text in made.items():
        assert path.read_text("utf-8") == text, "python -m tests.docs.reference"


def test_every_public_name_is_there() -> None:
    named = {(page.module, name) for page in PAGES for name in page.names}
    modules = {page.module for page in PAGES} - {"perdure.replication"}
    assert named >= {(module, name) for module in modules for name in exported(module)} - {
        ("perdure", "types")
    }
    assert set(perdure.aio.__all__) <= {name for _, name in named}


def test_every_name_says_what_it_is_and_is_shown() -> None:
    """Types are shown by the calls that give them, and what is as its twin, by the twin."""
    for page in PAGES:
        shown = {name for example in examples(page)[1] for name in example.names}
        there = {one.name: one for top in entries()[page.file] for one in [top, *top.members]}
        assert shown <= set(there), f"{page.examples} has examples of what is no public name"
        for name, one in there.items():
            twin = TWIN.search(one.doc.partition("\n\n")[0]) or name.startswith("Async")
            own = "." not in name or not one.signature.startswith(f"{name}:")
            if page.file != "types.md":
                assert one.doc or not own, f"{name} has no docstring"
                assert twin or not own or name in shown, f"{name} has no example"
