"""Values as JSON and in words."""

import datetime as dt
import json
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.cli import plain, words
from perdure.cli.failures import in_the_shell
from perdure.core.values.plain_values import same
from perdure.errors import Hint

ZONES = st.sampled_from(
    [None, dt.UTC, dt.timezone(dt.timedelta(hours=2)), ZoneInfo("Europe/Berlin")]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.binary(max_size=9)
    | st.text(st.characters(), max_size=9)
    | st.dates()
    | st.timedeltas()
    | st.uuids()
    | st.datetimes(timezones=ZONES)
    | st.times(timezones=ZONES)
    | st.decimals(allow_nan=False)
)
KEYS = st.text(max_size=5) | st.integers() | st.sampled_from(["$set", "$bytes", "$map", "$other"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.tuples(inner)
        | st.frozensets(st.integers() | st.text(max_size=3), max_size=4)
        | st.sets(st.integers() | st.tuples(st.integers()), max_size=4)
    ),
    max_leaves=12,
)


@given(VALUES)
def test_every_value_comes_back_from_json(value: Any) -> None:
    text = plain.ascii_dumps(plain.to_json(value))
    assert same(plain.from_json(json.loads(text)), value)
    assert same(plain.from_json(json.loads(plain.dumps(plain.to_json(value)))), value)


@pytest.mark.parametrize(
    "text",
    [
        '{"$tuple": "abc"}',
        '{"$set": "abc"}',
        '{"$frozenset": {"a": 1}}',
        '{"$map": ["ab"]}',
        '{"$map": {"xy": 1}}',
        '{"$timedelta": {"1": 2}}',
    ],
)
def test_a_tag_takes_no_other_form(text: str) -> None:
    """Story: a result of `settle --done` with a text where a list belongs was another value, which
    was recorded for good."""
    with pytest.raises(ValueError, match="cannot hold"):
        plain.from_json(json.loads(text))


@given(VALUES)
def test_words_are_printable_and_bounded(value: Any) -> None:
    short, full = words.short(value), words.full(value)
    assert short.isprintable()
    assert full.isprintable()
    assert len(short) < 200


def test_short_values() -> None:
    assert words.short({"role": "user", "a b": [1, (2,), set()]}) == (
        "{role: 'user', 'a b': [1, (2), set()]}"
    )
    assert words.short("x" * 100) == "'" + "x" * 57 + "…'"
    assert words.short(list(range(100))).endswith("more]")
    assert words.short(frozenset({1})) == "frozenset({1})"
    assert words.short(Decimal("1.10")) == "Decimal('1.10')"


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (1_234_567, "1.2 MB"),
        (999_960, "1.0 MB"),
        (5 * 10**15, "5000.0 TB"),
    ],
)
def test_sizes(count: int, said: str) -> None:
    assert words.size(count) == said


def test_ago() -> None:
    now = dt.datetime(2026, 8, 12, 12, tzinfo=dt.UTC)
    said = [
        words.ago(now - dt.timedelta(seconds=seconds), now)
        for seconds in (-5, 0, 30, 90, 3700, 7300, 90_000, 200_000)
    ]
    assert said == [
        "in the future",
        "just now",
        "30 s ago",
        "1 min ago",
        "1 hour ago",
        "2 hours ago",
        "1 day ago",
        "2 days ago",
    ]


def test_a_hint_about_who_has_a_store_open_shows_no_password() -> None:
    """Story: `perdure undo … --cancel-run` on a server said to look with `lsof URL`, with the
    password in it, for a process that may run on any machine."""
    for url in ("postgresql://app:hush-hush@host/agents", "sqlite:///a.db"):
        said = in_the_shell(Hint.BRANCH_HELD, url, shown=True)
        assert "hush-hush" not in said
        assert ("`lsof a.db` lists them" in said) is url.startswith("sqlite")
