"""What README and docs show runs: each Python block, and each command line of our own.

A file's blocks run in order, in one namespace and one temporary folder. A block under
``<!-- file: NAME -->`` is written to that file instead.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(
    r"^(?:<!-- file: (?P<file>\S+) -->\n)?```(?P<kind>\w+)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
OURS = {"perdure", "python"}
HARMLESS = {"sleep", "kill", "cat"}
LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(#[^)\s]*)?\)")


@dataclass(frozen=True)
class Block:
    kind: str
    body: str
    line: int
    file: str | None


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text("utf-8")
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start("body")) + 1
        yield Block(found["kind"], found["body"], line, found["file"])


def only_ours(script: str) -> bool:
    """Whether a shell block has no other commands than ours and harmless ones."""
    words = [
        shlex.split(command, comments=True)
        for line in script.splitlines()
        for command in re.split(r"&&|[;&|]", line)
    ]
    first = {command[0] for command in words if command}
    return bool(first & OURS) and first <= OURS | HARMLESS


def run_python(block: Block, page: Path, module: types.ModuleType) -> None:
    code = compile("\n" * (block.line - 1) + block.body, str(page), "exec")
    exec(code, module.__dict__)


def run_shell(block: Block, page: Path, folder: Path, commands: Path) -> None:
    path = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "NO_COLOR": "1",
    }
    done = subprocess.run(
        ["bash", "-e", "-c", block.body],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
    )
    where = f"{page.name}, line {block.line}"
    assert done.returncode == 0, f"{where}:\n{block.body}\n{done.stdout}\n{done.stderr}"


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """A folder with `python` and `perdure` as this very interpreter and source tree."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, options in {"python": "", "perdure": "-m perdure "}.items():
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {options}"$@"\n')
        script.chmod(0o755)
    return folder


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page(page: Path, tmp_path: Path, commands: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    module = new_module(page, monkeypatch)
    for block in blocks(page):
        if block.file is not None:
            write_file(block, folder, monkeypatch)
        elif block.kind == "python":
            run_python(block, page, module)
        elif block.kind == "sh" and only_ours(block.body):
            run_shell(block, page, folder, commands)
    close_stores(module)


def write_file(block: Block, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a file of a page, which later blocks may import, as where Python is started there."""
    assert block.file is not None
    (folder / block.file).write_text(block.body, "utf-8")
    if str(folder) not in sys.path:
        monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, block.file.removesuffix(".py"), raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # the next page's may have this name


def new_module(page: Path, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType(f"snippets_of_{page.stem}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def close_stores(module: types.ModuleType) -> None:
    """What a page leaves open, as its reader would."""
    for value in list(vars(module).values()):
        if type(value).__name__ == "Store":
            value.close()


def test_pages_may_be_tried_in_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a reader does: the first snippet twice, then one page after the other."""
    monkeypatch.chdir(tmp_path)
    for page in [PAGES[0], *PAGES]:
        module = new_module(page, monkeypatch)
        for block in blocks(page):
            if block.file is not None:
                write_file(block, tmp_path, monkeypatch)
            elif block.kind == "python":
                run_python(block, page, module)
        close_stores(module)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_readers_need_nothing_but_the_package(page: Path) -> None:
    for block in blocks(page):
        if block.kind == "python":
            assert not re.search(r"^\s*(import|from) (pytest|tests|examples)\b", block.body, re.M)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text("utf-8")
    for target, anchor in LINK.findall(text):
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), f"{page.name} links to {target}"
        if anchor and found.suffix == ".md":
            assert anchor[1:] in anchors(found), f"{page.name} links to {target}{anchor}"


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_pages_are_found() -> None:
    assert any(block.kind == "python" for block in blocks(ROOT / "README.md"))
    assert only_ours("perdure ls  # all\npython agent.py & sleep 2; kill -9 $!")
    assert not only_ours("pip install perdure")
    assert not only_ours("cp agents.db elsewhere && perdure ls")
