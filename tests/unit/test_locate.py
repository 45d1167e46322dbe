"""From a store's URL to its backend."""

import os
from pathlib import Path

import pytest

import perdure


@pytest.mark.parametrize(
    "url", ["memory:", "sqlite:agents.db", "postgresql:/me:w0rd@host/agents", "postgres:agents"]
)
def test_a_url_that_lacks_a_slash_makes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    """It was taken for a path: an agent whose URL had lost a slash began anew, in a file named
    'postgres:agents'."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="lacks a slash: write it as") as caught:
        perdure.open(url)
    assert "w0rd" not in str(caught.value)
    assert os.listdir(tmp_path) == []
    perdure.open(f"./{url.replace('/', '')}").close()  # who means it may


@pytest.mark.parametrize("name", ["a?b.db", "C#/a.db", "a?mode=ro"])
def test_a_store_is_found_by_its_url_whatever_its_path(tmp_path: Path, name: str) -> None:
    """In a folder called C#, a store worked, and the URL that it gives as its own could not be
    opened: a copy said that its source could not be reached, and how to do without it."""
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    with pytest.raises(ValueError, match="four slashes"):
        perdure.open(f"sqlite:///{path}")
    with perdure.open(path) as store:
        store.agent("a").save({"n": 1})
        url = store.url
    with perdure.open(url) as store:
        assert store.agent("a").state == {"n": 1}
