"""Server URLs in every form that libpq accepts, and role settings that Recollect overrides or refuses."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import recollect
from recollect.engine.postgres.address import Address


def conninfo_values(conninfo, *names):
    parameters = conninfo_to_dict(conninfo)
    return tuple(parameters.get(name) for name in names)


@pytest.mark.parametrize(
    ("url", "expected", "display_url"),
    [
        ("postgresql:///chats", (None, None, None, "chats"), "postgresql:///chats"),
        ("postgresql:///chats?pool_size=3", (None, None, None, "chats"), "postgresql:///chats"),
        ("postgresql:///chats?host=/run/pg", ("/run/pg", None, None, "chats"), "postgresql://%2Frun%2Fpg/chats"),
        (
            "postgresql://me@%2Frun%2Fpg:5433/chats",
            ("/run/pg", "5433", "me", "chats"),
            "postgresql://me@%2Frun%2Fpg:5433/chats",
        ),
        ("postgresql://?service=chats", (None, None, None, None), "postgresql:///?service=chats"),
        (
            "postgresql://[::1]:5433,[::2],b/chats",
            ("::1,::2,b", "5433,,", None, "chats"),
            "postgresql://[::1]:5433,[::2],b/chats",
        ),
        ("postgresql://m%40e@h/my%20chats", ("h", None, "m@e", "my chats"), "postgresql://m%40e@h/my%20chats"),
    ],
)
def test_a_url_is_parsed_and_displayed(url, expected, display_url):
    address = Address(url)
    assert conninfo_values(address.conninfo, "host", "port", "user", "dbname") == expected
    assert address.display_url == display_url
    assert conninfo_values(Address(display_url).conninfo, "host", "port", "user", "dbname") == expected


@pytest.mark.parametrize("password", ["a#b", "a?b", "a#b?c", "100%25"])
def test_a_password_may_contain_url_delimiters(password):
    address = Address(f"postgresql://me:{password}@h:5433/chats?pool_size=2")
    assert conninfo_values(address.conninfo, "password", "host", "dbname") == (
        password.replace("%25", "%"),
        "h",
        "chats",
    )
    assert address.pool_size == 2
    assert address.display_url == "postgresql://me@h:5433/chats"


@pytest.mark.parametrize("name", ["listen", "replica"])
def test_listen_and_replica_name_other_servers(name):
    address = Address(f"postgresql://pooler:6432/chats?hostaddr=10.0.0.1&{name}=[::1]:5433,[::2],c")
    conninfo = address.listen_conninfo if name == "listen" else address.replica
    assert conninfo_values(conninfo, "host", "port", "hostaddr") == ("::1,::2,c", "5433,5432,5432", "")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("prepare=maybe", "prepare must be on or off"),
        ("listen=:", "listen must be host:port"),
        ("replica=a:b", "replica must be host:port"),
        ("sslmod=require", "'sslmod' is not a known option"),
    ],
)
def test_an_invalid_option_raises(query, message):
    with pytest.raises(recollect.InvalidValue, match=message):
        Address(f"postgresql://h/chats?{query}")


def test_pgconnect_timeout_overrides_the_default(monkeypatch):
    assert conninfo_values(Address("postgresql://h/x").conninfo, "connect_timeout") == ("10",)
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "3")
    assert conninfo_values(Address("postgresql://h/x").conninfo, "connect_timeout") == (None,)


@pytest.fixture
def alter_role(databases):
    """Return a function that sets a parameter for the role `plain` in a new database, and returns the URL."""
    names = []

    def set_for_role(setting):
        names.append(databases.make())
        with psycopg.connect(databases.url_of(names[-1], "postgres"), autocommit=True) as admin:
            admin.execute(f'ALTER ROLE plain IN DATABASE "{names[-1]}" SET {setting}'.encode())
        return databases.url_of(names[-1], "plain")

    yield set_for_role
    for name in names:
        databases.drop(name)


class TestSettingsOfTheRole:
    """Parameters that an administrator or the environment may have set for other programs."""

    @pytest.mark.parametrize("source", ["role", "environment", "URL"])
    def test_text_is_stored_as_utf_8_with_another_client_encoding(self, alter_role, databases, monkeypatch, source):
        url = alter_role("client_encoding = 'LATIN1'" if source == "role" else "work_mem = '1MB'")
        if source == "environment":
            monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
        with recollect.open(f"{url}?client_encoding=LATIN1" if source == "URL" else url) as store:
            store.session("a", title="Größe 漢").append({"role": "user", "content": "é"})
            assert store.session("a").title == "Größe 漢"
        monkeypatch.delenv("PGCLIENTENCODING", raising=False)
        with psycopg.connect(url, client_encoding="UTF8") as connection:
            connection.execute("SELECT set_config('recollect.owner', '', false)")
            assert connection.execute("SELECT title FROM recollect.sessions").fetchone() == ("Größe 漢",)

    def test_bytes_are_decoded_in_escape_format(self, alter_role):
        picture = "data:image/png;base64," + "AFwnMP9cXA==" * 20_000
        with recollect.open(alter_role("bytea_output = 'escape'")) as store:
            part = recollect.AttachmentPart(mime_type="image/png", url=picture)
            store.session("a").append(recollect.Draft(role="user", parts=(part,)))
            assert store.session("a").messages()[0].parts[0].url == picture  # pyright: ignore[reportAttributeAccessIssue]

    @pytest.mark.parametrize(
        "setting", ["row_security = off", "standard_conforming_strings = off", "recollect.owner = ann"]
    )
    def test_an_incompatible_role_setting_is_refused_by_name(self, alter_role, setting):
        url = alter_role(setting)
        with pytest.raises(recollect.StoreUnavailable, match=rf"{setting} is set .* RESET {setting.split()[0]} undoes"):
            recollect.open(url)
