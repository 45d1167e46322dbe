"""What docs/architecture.md says of files is so."""

import re

from tests.docs.rooms import PAGE, page
from tests.source_tree import ROOT, SOURCE


def test_the_page_says_of_each_file_what_the_file_says() -> None:
    assert PAGE.read_text("utf-8") == page(), "python -m tests.docs.rooms"


def test_the_files_that_the_walks_go_through_are_there() -> None:
    walks = PAGE.read_text("utf-8").partition("## File by file")[0]
    files = {path.relative_to(SOURCE / "perdure") for path in SOURCE.rglob("perdure/**/*.py")}
    named = re.findall(r"`((?:\w+/)*\w+\.py)`", walks)
    assert len(named) > 40
    for name in named:
        assert any(str(path).endswith(name) for path in files) or (ROOT / name).exists(), name


def test_the_functions_that_the_walks_go_through_are_there() -> None:
    walks = PAGE.read_text("utf-8").partition("## Words")[0]
    text = "".join(path.read_text("utf-8") for path in SOURCE.rglob("perdure/**/*.py"))
    for owner, name in re.findall(r"`(\w+)\.(\w+)`", walks):
        if name != "py":
            assert re.search(rf"def {name}\(", text), f"{owner}.{name}"
