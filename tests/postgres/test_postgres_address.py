"""The URL of a server in every form that PostgreSQL's own programs take, and settings of a role that would be in the way."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import recollect
from recollect.engine.postgres.address import Address


def known(conninfo, *names):
    found = conninfo_to_dict(conninfo)
    return tuple(found.get(name) for name in names)


@pytest.mark.parametrize(
    ("url", "read", "shown"),
    [
        ("postgresql:///talks", (None, None, None, "talks"), "postgresql:///talks"),
        ("postgresql:///talks?pool_size=3", (None, None, None, "talks"), "postgresql:///talks"),
        ("postgresql:///talks?host=/run/pg", ("/run/pg", None, None, "talks"), "postgresql://%2Frun%2Fpg/talks"),
        (
            "postgresql://me@%2Frun%2Fpg:5433/talks",
            ("/run/pg", "5433", "me", "talks"),
            "postgresql://me@%2Frun%2Fpg:5433/talks",
        ),
        ("postgresql://?service=talks", (None, None, None, None), "postgresql:///?service=talks"),
        (
            "postgresql://[::1]:5433,[::2],b/talks",
            ("::1,::2,b", "5433,,", None, "talks"),
            "postgresql://[::1]:5433,[::2],b/talks",
        ),
        ("postgresql://m%40e@h/my%20talks", ("h", None, "m@e", "my talks"), "postgresql://m%40e@h/my%20talks"),
    ],
)
def test_how_a_url_is_read_and_shown(url, read, shown):
    address = Address(url)
    assert known(address.conninfo, "host", "port", "user", "dbname") == read
    assert address.shown == shown
    assert known(Address(shown).conninfo, "host", "port", "user", "dbname") == read


@pytest.mark.parametrize("password", ["a#b", "a?b", "a#b?c", "100%25"])
def test_a_password_with_signs_that_other_urls_give_a_meaning(password):
    address = Address(f"postgresql://me:{password}@h:5433/talks?pool_size=2")
    assert known(address.conninfo, "password", "host", "dbname") == (password.replace("%25", "%"), "h", "talks")
    assert address.pool_size == 2
    assert address.shown == "postgresql://me@h:5433/talks"


@pytest.mark.parametrize("name", ["listen", "replica"])
def test_other_servers(name):
    address = Address(f"postgresql://pooler:6432/talks?hostaddr=10.0.0.1&{name}=[::1]:5433,[::2],c")
    way = address.listening if name == "listen" else address.replica
    assert known(way, "host", "port", "hostaddr") == ("::1,::2,c", "5433,5432,5432", "")


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("prepare=maybe", "prepare is on or off"),
        ("listen=:", "listen is host:port"),
        ("replica=a:b", "replica is host:port"),
        ("sslmod=require", "'sslmod' after its"),
    ],
)
def test_what_a_url_can_not_say(query, words):
    with pytest.raises(recollect.InvalidValue, match=words):
        Address(f"postgresql://h/talks?{query}")


def test_the_environment_says_how_long_to_wait_for_a_connection(monkeypatch):
    assert known(Address("postgresql://h/x").conninfo, "connect_timeout") == ("10",)
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "3")
    assert known(Address("postgresql://h/x").conninfo, "connect_timeout") == (None,)


@pytest.fixture
def altered(databases):
    """Give what sets something for the ordinary role in a database of this test's own, and gives its URL."""
    made = []

    def alter(setting):
        made.append(databases.make())
        with psycopg.connect(databases.url_of(made[-1], "postgres"), autocommit=True) as admin:
            admin.execute(f'ALTER ROLE plain IN DATABASE "{made[-1]}" SET {setting}')
        return databases.url_of(made[-1], "plain")

    yield alter
    for name in made:
        databases.drop(name)


class TestSettingsOfTheRole:
    """What an administrator, or the environment, may have set for other programs."""

    @pytest.mark.parametrize("how", ["role", "environment", "URL"])
    def test_text_is_stored_as_utf_8(self, altered, databases, monkeypatch, how):
        url = altered("client_encoding = 'LATIN1'" if how == "role" else "work_mem = '1MB'")
        if how == "environment":
            monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
        with recollect.open(f"{url}?client_encoding=LATIN1" if how == "URL" else url) as store:
            store.session("a", title="Größe 漢").append({"role": "user", "content": "é"})
            assert store.session("a").title == "Größe 漢"
        monkeypatch.delenv("PGCLIENTENCODING", raising=False)
        with psycopg.connect(url, client_encoding="UTF8") as connection:
            connection.execute("SELECT set_config('recollect.owner', '', false)")
            assert connection.execute("SELECT title FROM recollect.sessions").fetchone() == ("Größe 漢",)

    def test_bytes_come_in_either_form(self, altered):
        picture = "data:image/png;base64," + "AFwnMP9cXA==" * 20_000
        with recollect.open(altered("bytea_output = 'escape'")) as store:
            part = recollect.AttachmentPart(mime_type="image/png", url=picture)
            store.session("a").append(recollect.Draft(role="user", parts=(part,)))
            assert store.session("a").messages()[0].parts[0].url == picture

    @pytest.mark.parametrize(
        "setting", ["row_security = off", "standard_conforming_strings = off", "recollect.owner = ann"]
    )
    def test_one_with_which_it_can_not_work_is_named(self, altered, setting):
        url = altered(setting)
        with pytest.raises(recollect.StoreUnavailable, match=rf"{setting} is set .* RESET {setting.split()[0]} undoes"):
            recollect.open(url)
