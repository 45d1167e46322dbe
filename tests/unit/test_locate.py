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
