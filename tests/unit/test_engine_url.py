"""Where a store is: paths, URLs, the environment, the default."""

from __future__ import annotations

import os
import pathlib
import sys

import pytest

import recollect
from recollect import config
from recollect.engine.url import MEMORY, target
from recollect.errors import InvalidValue


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("RECOLLECT_DB", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    return str(tmp_path)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a.db", "a.db"),
        ("./x/../a.db", "a.db"),
        ("sub/a.db", "sub/a.db"),
        ("a b%20c.db", "a b%20c.db"),
        ("a:b.db", "a:b.db"),
        ("memory", "memory"),
        ("sqlite:a.db", "a.db"),
        ("sqlite:sub/a.db", "sub/a.db"),
        ("sqlite:///a.db", "a.db"),
        ("SQLite:///a.db", "a.db"),
        ("sqlite:///sub/a.db", "sub/a.db"),
        ("sqlite:///a%20b.db", "a b.db"),
        ("sqlite:///a%23b%3F.db", "a#b?.db"),
        ("~/a.db", "home/a.db"),
        ("sqlite:~/a.db", "home/a.db"),
    ],
)
def test_relative_paths(here, text, path):
    assert target(text) == ("sqlite", os.path.join(here, path))


@pytest.mark.parametrize(
    "text", ["/abs/a.db", "sqlite:////abs/a.db", "sqlite:/abs/a.db", "/abs//./a.db", "sqlite:////abs/../abs/a.db"]
)
def test_absolute_paths(text):
    assert target(text) == ("sqlite", "/abs/a.db")


def test_a_path_object(here):
    assert target(pathlib.Path("a.db")).path == os.path.join(here, "a.db")


@pytest.mark.parametrize(
    "text", [":memory:", "sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite::memory:", "sqlite:"]
)
def test_memory(text):
    assert target(text) == ("sqlite", MEMORY)


def test_the_default_is_in_the_data_folder(here):
    assert target(None).path == os.path.join(here, "home", ".local", "share", "recollect", "recollect.db")


def test_the_data_folder_follows_xdg(here, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", os.path.join(here, "data"))
    assert target(None).path == os.path.join(here, "data", "recollect", "recollect.db")


@pytest.mark.parametrize("text", ["e.db", "sqlite:///e.db"])
def test_the_environment_names_the_store(here, monkeypatch, text):
    monkeypatch.setenv("RECOLLECT_DB", text)
    assert target(None).path == os.path.join(here, "e.db")
    assert target("other.db").path == os.path.join(here, "other.db")


def test_an_empty_environment_variable_is_none(here, monkeypatch):
    monkeypatch.setenv("RECOLLECT_DB", "")
    monkeypatch.setenv("XDG_DATA_HOME", "")
    assert target(None).path.startswith(os.path.join(here, "home"))


@pytest.mark.parametrize("text", ["sqlite:////tmp/a.db?mode=ro", "sqlite:///a.db#x", "sqlite:a.db?", "sqlite:///?x"])
def test_options_of_a_sqlite_url_are_refused(text):
    with pytest.raises(InvalidValue, match="has no options"):
        target(text)


@pytest.mark.parametrize("text", ["~nobody-is-called-so/a.db", "sqlite:~nobody-is-called-so/a.db"])
def test_a_home_that_is_not_known(text):
    with pytest.raises(InvalidValue, match="home folder that is not known: ~nobody-is-called-so"):
        target(text)


def test_a_file_whose_name_begins_as_a_home_does(here):
    assert target("~draft.db").path == os.path.join(here, "~draft.db")
    assert target("./~me/a.db").path == os.path.join(here, "~me/a.db")


@pytest.mark.parametrize(
    "text", ["mysql://host/x", "http://a/b", "redis://x", "file:///a.db", "file:a.db", "file:/a.db", "SQLITEX://a"]
)
def test_unknown_schemes_are_refused(text):
    with pytest.raises(InvalidValue, match="no store that Recollect knows"):
        target(text)


@pytest.mark.parametrize("text", ["postgresql://host/x", "postgres://me:hunter2@host:5433/x?sslmode=require"])
def test_postgres(text):
    assert target(text) == ("postgres", text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://host/x", "postgresql://host/x"),
        ("postgresql://me:hunter2@host:5433/x", "postgresql://me@host:5433/x"),
        ("postgres://me:hun:ter2@a,b/x?sslmode=require&password=hunter2", "postgres://me@a,b/x?sslmode=require"),
        ("postgresql://me:hun#ter2@host/x?sslmode=require", "postgresql://me@host/x?sslmode=require"),
        ("postgresql://me:hun?ter2@host/x", "postgresql://me@host/x"),
        ("postgresql://me:hun/ter2@host/x", "postgresql://me@host/x"),
        ("postgresql:///x?host=/run/pg&password=hunter2", "postgresql:///x?host=/run/pg"),
        ("a.db", None),
    ],
)
def test_what_is_shown_has_no_password(text, shown):
    assert target(text).shown == (shown or target(text).path)


def test_a_refusal_does_not_tell_a_password():
    with pytest.raises(InvalidValue) as caught:
        target("mysql://me:hunter2@host/x")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("place", ["", b"a.db", "a\0b", "sqlite:///a%00b"], ids=repr)
def test_what_is_no_place_is_refused(place):
    with pytest.raises(InvalidValue):
        target(place)


@pytest.mark.parametrize("place", [5, b"bytes.db", [], ""])
def test_what_names_no_place(place):
    with pytest.raises(InvalidValue, match="path or a URL"):
        target(place)


@pytest.mark.parametrize("owner", [None, 5, "a\0b", "\ud800", "x" * 257, "é" * 255 + "漢"])
def test_what_is_no_owner(owner):
    with pytest.raises(InvalidValue, match="owner"):
        recollect.open(MEMORY, owner=owner)
    with pytest.raises(InvalidValue, match="owner"):
        recollect.open_async(MEMORY, owner=owner)


@pytest.mark.parametrize("timeout", [None, "30", -1, float("nan"), float("inf")])
def test_what_is_no_timeout(timeout):
    with pytest.raises(InvalidValue, match="seconds"):
        recollect.open(MEMORY, timeout=timeout)


@pytest.mark.parametrize("text", ["\udcff.db", "sqlite:///\ud83d.db", "postgresql:///\ud83d"])
def test_a_place_that_is_not_utf_8_is_refused(text):
    with pytest.raises(InvalidValue, match="UTF-8"):
        recollect.open(text)


def test_a_relative_data_folder_is_passed_over(here, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", "data")
    assert target(None).path == os.path.join(here, "home/.local/share/recollect/recollect.db")


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="the folders of other systems have other names")
def test_an_empty_home_is_none(monkeypatch):
    import pwd

    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "RECOLLECT_DB", "RECOLLECT_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    own = pwd.getpwuid(os.getuid()).pw_dir
    monkeypatch.setenv("HOME", "")
    assert config.data_folder() == os.path.join(own, ".local/share/recollect")
    assert config.config_folder() == os.path.join(own, ".config/recollect")
    assert target("~/a.db").path == target("sqlite:~/a.db").path == os.path.join(own, "a.db")
    monkeypatch.setenv("RECOLLECT_DB", "~/b.db")
    assert target(None).path == os.path.join(own, "b.db")
    monkeypatch.setenv("RECOLLECT_CONFIG", "~/c.toml")
    assert config.file() == os.path.join(own, "c.toml")


@pytest.mark.parametrize(
    "text", ["host=localhost dbname=talks password=hunter2", "  user = ann", "dbname=x", "service=talks"]
)
def test_a_connection_string_of_the_driver_is_no_file(here, text):
    with pytest.raises(InvalidValue, match="Write it as a URL: postgresql://") as caught:
        target(text)
    assert "hunter2" not in str(caught.value)
    assert target(f"./{text}").path == os.path.join(here, text)
    with open(os.path.join(here, text), "wb"):
        pass
    assert target(text).path == os.path.join(here, text)


@pytest.mark.parametrize("text", ["a=b.db", "ghost=1", "folder/host=x", "users=3"])
def test_a_name_with_an_equals_sign_is_a_file(here, text):
    assert target(text).path == os.path.join(here, text)
