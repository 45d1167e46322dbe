"""Errors that tell the way back are errors like others: one can go along their causes."""

import pytest

import perdure
from perdure.errors import Corrupt, StoreUnavailable
from perdure.storage.log.way_back import with_way_back


def causes(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None:
        assert not any(cause is other for other in found), "it is its own cause"
        found.append(cause)
        cause = cause.__cause__
    return found


def test_no_error_is_its_own_cause_where_the_store_fails_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a page was damaged, or the store failed while the way back was looked for, the error
    was raised from itself: whoever went along its causes never came to an end."""
    with perdure.open("memory://") as store:
        agent = store.agent("a")
        agent.save({"n": 1}, "made")
        reader = agent._working.reader

        def fails(*_: object, **__: object) -> None:
            raise StoreUnavailable("it is gone")

        monkeypatch.setattr(reader, "peek", fails)
        found = Corrupt("it does not fit", seq=1)
        with pytest.raises(Corrupt) as told:
            raise with_way_back(reader, found, 1) from found
        assert causes(told.value) == [told.value, found]

        def damaged(*_: object, **__: object) -> None:
            raise Corrupt("a page fails its checksum")

        monkeypatch.setattr(reader._backend, "read", damaged)
        with pytest.raises(Corrupt) as told:
            list(reader.commits())
        assert len(causes(told.value)) == 1
