"""Connections whose other end proves who it is; and those that prove nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure.errors import StoreUnavailable
from perdure.replication import following
from perdure.storage.postgres.backend import PostgresBackend
from perdure.storage.postgres.faults import AwayError
from perdure.storage.standing import read_why
from perdure.system.urls import same_store
from perdure.testing.pen import Pen
from tests.postgres.conftest import Open
from tests.postgres.server import Server
from tests.postgres.tls import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "known")


def _certified(authority: Authority, host: str) -> Iterator[Server]:
    server = Server()
    try:
        server.settings |= authority.certify(server.folder, host, server.owner)
        yield server.start()
    finally:
        server.remove()


@pytest.fixture(scope="module")
def secure(authority: Authority) -> Iterator[Server]:
    yield from _certified(authority, "127.0.0.1")


@pytest.fixture(scope="module")
def elsewhere(authority: Authority) -> Iterator[Server]:
    """Its certificate is another host's."""
    yield from _certified(authority, "db.example")


def test_who_proves_its_name_is_talked_to(
    secure: Server, authority: Authority, open_store: Open
) -> None:
    url = secure.new_url(sslmode="verify-full", sslrootcert=authority.file)
    backend = open_store(url)
    pen = Pen(backend)
    pen.write()
    pen.write()
    assert len(backend.read(pen.number(), 1, 9)) == 2
    rows = secure.sql(
        "SELECT bool_and(s.ssl), count(*) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) "
        "WHERE a.application_name = 'perdure'"
    )
    assert rows[0][0] is True and rows[0][1] >= 1


def test_a_copy_asks_its_source_to_prove_itself_again(
    secure: Server, elsewhere: Server, authority: Authority, tmp_path: Path
) -> None:
    """The follower kept the source's URL without `sslmode=verify-full`. At the promotion whoever
    answered there was believed that there was nothing more to ship, and told to close."""
    url = secure.new_url(sslmode="verify-full", sslrootcert=authority.file)
    copy = str(tmp_path / "copy.db")
    with perdure.open(url) as store:
        store.agent("a").save({"n": 1})
        assert "sslmode=verify-full" in store.url and str(authority.file) in store.url
        for _ in range(2):
            with following(url, copy) as follower:
                follower.catch_up()
    with perdure.open(copy) as copied:
        why = read_why(copied._context.backend.standing())
        assert why is not None and why.url == store.url
    assert same_store(why.url, url.partition("&")[0])
    assert not same_store(why.url, elsewhere.new_url())


def _refused(url: str) -> StoreUnavailable:
    """Not as a server that is away, for which an open store would wait."""
    with pytest.raises(StoreUnavailable) as caught:
        PostgresBackend(url)
    assert not isinstance(caught.value, AwayError)
    assert caught.value.outcome == "not_done"
    assert "TLS" in str(caught.value)
    assert "sslrootcert" in caught.value.hint
    return caught.value


def test_whom_nobody_known_vouches_for_is_refused(secure: Server, tmp_path: Path) -> None:
    """A wrong authority was told as "the server cannot be reached: check the network"."""
    other = Authority(tmp_path, "other")
    error = _refused(secure.new_url(sslmode="verify-full", sslrootcert=other.file))
    assert "certificate verify failed" in str(error)


def test_who_has_anothers_name_is_refused(elsewhere: Server, authority: Authority) -> None:
    error = _refused(elsewhere.new_url(sslmode="verify-full", sslrootcert=authority.file))
    assert "db.example" in str(error)
    PostgresBackend(elsewhere.new_url(sslmode="verify-ca", sslrootcert=authority.file)).close()


def test_who_speaks_no_tls_is_refused(server: Server, authority: Authority) -> None:
    error = _refused(server.new_url(sslmode="require"))
    assert "does not support SSL" in str(error)


def test_a_root_certificate_that_is_not_there_is_said(secure: Server, tmp_path: Path) -> None:
    error = _refused(secure.new_url(sslmode="verify-full", sslrootcert=tmp_path / "none.pem"))
    assert "none.pem" in str(error)


def test_a_server_that_comes_back_with_another_certificate_is_not_talked_to(
    authority: Authority, tmp_path: Path, open_store: Open
) -> None:
    """An open store's next connection proves it, too."""
    for server in _certified(authority, "127.0.0.1"):
        url = server.new_url(sslmode="verify-full", sslrootcert=authority.file)
        backend = open_store(url + "&retry=3600")
        pen = Pen(backend)
        pen.write()
        server.stop()
        Authority(tmp_path, "other").certify(server.folder, "127.0.0.1", server.owner)
        server.start()
        (outcome,) = backend.append([pen.make()[0]])
        assert isinstance(outcome, StoreUnavailable), outcome
        assert "certificate" in str(outcome)
        backend.close()
