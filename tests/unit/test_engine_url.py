"""The location of a store: paths, URLs, the environment, the default."""

from __future__ import annotations

import os
import pathlib
import sys

import pytest

import recollect
from recollect import config
from recollect.engine.url import MEMORY, parse_target
from recollect.errors import InvalidValue


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
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
def test_relative_paths(folder, text, path):
    assert parse_target(text) == ("sqlite", os.path.join(folder, path))


@pytest.mark.parametrize(
    "text", ["/abs/a.db", "sqlite:////abs/a.db", "sqlite:/abs/a.db", "/abs//./a.db", "sqlite:////abs/../abs/a.db"]
)
def test_absolute_paths(text):
    assert parse_target(text) == ("sqlite", "/abs/a.db")


def test_a_path_object(folder):
    assert parse_target(pathlib.Path("a.db")).path == os.path.join(folder, "a.db")


@pytest.mark.parametrize(
    "text", [":memory:", "sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite::memory:", "sqlite:"]
)
def test_memory(text):
    assert parse_target(text) == ("sqlite", MEMORY)


def test_the_default_is_in_the_data_folder(folder):
    assert parse_target(None).path == os.path.join(folder, "home", ".local", "share", "recollect", "recollect.db")


def test_the_data_folder_follows_xdg(folder, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", os.path.join(folder, "data"))
    assert parse_target(None).path == os.path.join(folder, "data", "recollect", "recollect.db")


@pytest.mark.parametrize("text", ["e.db", "sqlite:///e.db"])
def test_the_environment_sets_the_location(folder, monkeypatch, text):
    monkeypatch.setenv("RECOLLECT_DB", text)
    assert parse_target(None).path == os.path.join(folder, "e.db")
    assert parse_target("other.db").path == os.path.join(folder, "other.db")


def test_an_empty_environment_variable_is_ignored(folder, monkeypatch):
    monkeypatch.setenv("RECOLLECT_DB", "")
    monkeypatch.setenv("XDG_DATA_HOME", "")
    assert parse_target(None).path.startswith(os.path.join(folder, "home"))


@pytest.mark.parametrize("text", ["sqlite:////tmp/a.db?mode=ro", "sqlite:///a.db#x", "sqlite:a.db?", "sqlite:///?x"])
def test_options_of_a_sqlite_url_are_refused(text):
    with pytest.raises(InvalidValue, match="has no options"):
        parse_target(text)


@pytest.mark.parametrize("text", ["~no-such-user/a.db", "sqlite:~no-such-user/a.db"])
def test_an_unknown_home_folder_is_refused(text):
    with pytest.raises(InvalidValue, match=r"home folder ~no-such-user of .* is unknown"):
        parse_target(text)


def test_a_file_name_may_begin_with_a_tilde(folder):
    assert parse_target("~draft.db").path == os.path.join(folder, "~draft.db")
    assert parse_target("./~me/a.db").path == os.path.join(folder, "~me/a.db")


@pytest.mark.parametrize(
    "text", ["mysql://host/x", "http://a/b", "redis://x", "file:///a.db", "file:a.db", "file:/a.db", "SQLITEX://a"]
)
def test_unknown_schemes_are_refused(text):
    with pytest.raises(InvalidValue, match="is not a supported kind of store"):
        parse_target(text)


@pytest.mark.parametrize("text", ["postgresql://host/x", "postgres://me:hunter2@host:5433/x?sslmode=require"])
def test_postgres(text):
    assert parse_target(text) == ("postgres", text)


@pytest.mark.parametrize(
    ("text", "expected"),
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
def test_the_display_url_has_no_password(text, expected):
    assert parse_target(text).display_url == (expected or parse_target(text).path)


def test_an_error_does_not_contain_the_password():
    with pytest.raises(InvalidValue) as excinfo:
        parse_target("mysql://me:hunter2@host/x")
    assert "hunter2" not in str(excinfo.value)


@pytest.mark.parametrize("target", ["", b"a.db", "a\0b", "sqlite:///a%00b"], ids=repr)
def test_an_invalid_target_is_refused(target):
    with pytest.raises(InvalidValue):
        parse_target(target)


@pytest.mark.parametrize("target", [5, b"bytes.db", [], ""])
def test_a_target_must_be_a_path_or_a_url(target):
    with pytest.raises(InvalidValue, match="path or a URL"):
        parse_target(target)


@pytest.mark.parametrize("owner", [None, 5, "a\0b", "\ud800", "x" * 257, "é" * 255 + "漢"])
def test_an_invalid_owner_is_refused(owner):
    with pytest.raises(InvalidValue, match="owner"):
        recollect.open(MEMORY, owner=owner)
    with pytest.raises(InvalidValue, match="owner"):
        recollect.open_async(MEMORY, owner=owner)


@pytest.mark.parametrize("timeout", [None, "30", -1, float("nan"), float("inf")])
def test_an_invalid_timeout_is_refused(timeout):
    with pytest.raises(InvalidValue, match="seconds"):
        recollect.open(MEMORY, timeout=timeout)


@pytest.mark.parametrize("text", ["\udcff.db", "sqlite:///\ud83d.db", "postgresql:///\ud83d"])
def test_a_target_that_is_not_utf_8_is_refused(text):
    with pytest.raises(InvalidValue, match="UTF-8"):
        recollect.open(text)


def test_a_relative_data_folder_is_ignored(folder, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", "data")
    assert parse_target(None).path == os.path.join(folder, "home/.local/share/recollect/recollect.db")


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="the folders of other systems have other names")
def test_an_empty_home_variable_is_ignored(monkeypatch):
    import pwd

    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "RECOLLECT_DB", "RECOLLECT_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    home = pwd.getpwuid(os.getuid()).pw_dir
    monkeypatch.setenv("HOME", "")
    assert config.data_folder() == os.path.join(home, ".local/share/recollect")
    assert config.config_folder() == os.path.join(home, ".config/recollect")
    assert parse_target("~/a.db").path == parse_target("sqlite:~/a.db").path == os.path.join(home, "a.db")
    monkeypatch.setenv("RECOLLECT_DB", "~/b.db")
    assert parse_target(None).path == os.path.join(home, "b.db")
    monkeypatch.setenv("RECOLLECT_CONFIG", "~/c.toml")
    assert config.config_file() == os.path.join(home, "c.toml")


@pytest.mark.parametrize(
    "text", ["host=localhost dbname=sessions password=hunter2", "  user = ann", "dbname=x", "service=sessions"]
)
def test_a_connection_string_of_the_driver_is_refused_unless_the_file_exists(folder, text):
    with pytest.raises(InvalidValue, match="Use a URL: postgresql://") as excinfo:
        parse_target(text)
    assert "hunter2" not in str(excinfo.value)
    assert parse_target(f"./{text}").path == os.path.join(folder, text)
    with open(os.path.join(folder, text), "wb"):
        pass
    assert parse_target(text).path == os.path.join(folder, text)


@pytest.mark.parametrize("text", ["a=b.db", "ghost=1", "folder/host=x", "users=3"])
def test_a_name_with_an_equals_sign_is_a_file(folder, text):
    assert parse_target(text).path == os.path.join(folder, text)
