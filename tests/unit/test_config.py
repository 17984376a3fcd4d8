"""Settings: the file, the environment and the options, each over the one before; and what is wrong, with its line."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recollect import config
from recollect.config import toml
from recollect.config.effective import load
from recollect.config.settings import SETTINGS
from recollect.config.values import duration, masked, size
from recollect.errors import InvalidConfig, InvalidValue

calm = settings(  # other work shares the machine
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    for name in list(os.environ):
        if name.startswith(("RECOLLECT_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def write(tmp_path, monkeypatch):
    path = tmp_path / "folder" / "my.toml"
    path.parent.mkdir()
    monkeypatch.setenv("RECOLLECT_CONFIG", str(path))

    def write(text: str | bytes) -> str:
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return str(path)

    return write


class TestPlaces:
    def test_linux(self, tmp_path, monkeypatch):
        monkeypatch.setattr(sys, "platform", "linux")
        assert config.file() == str(tmp_path / "home/.config/recollect/config.toml")
        assert config.default_database() == str(tmp_path / "home/.local/share/recollect/recollect.db")
        monkeypatch.setenv("XDG_CONFIG_HOME", "/c")
        monkeypatch.setenv("XDG_DATA_HOME", "/d")
        assert config.file() == "/c/recollect/config.toml"
        assert config.default_database() == "/d/recollect/recollect.db"

    def test_macos(self, tmp_path, monkeypatch):
        monkeypatch.setattr(sys, "platform", "darwin")
        monkeypatch.setenv("XDG_CONFIG_HOME", "/c")
        folder = tmp_path / "home/Library/Application Support/recollect"
        assert config.file() == str(folder / "config.toml")
        assert config.default_database() == str(folder / "recollect.db")

    def test_windows(self, monkeypatch):
        monkeypatch.setattr(sys, "platform", "win32")
        monkeypatch.setenv("APPDATA", "C:\\Roaming")
        monkeypatch.setenv("LOCALAPPDATA", "C:\\Local")
        assert config.file().startswith("C:\\Roaming")
        assert config.default_database().startswith("C:\\Local")

    def test_a_named_file_must_be_there(self, monkeypatch):
        monkeypatch.setenv("RECOLLECT_CONFIG", "~/none.toml")
        with pytest.raises(InvalidConfig, match=r"RECOLLECT_CONFIG names .*/home/none.toml"):
            config.database()

    def test_an_empty_name_is_none(self, monkeypatch):
        monkeypatch.setenv("RECOLLECT_CONFIG", "")
        assert load().exists is False

    def test_an_empty_file_sets_nothing(self, monkeypatch):
        monkeypatch.setenv("RECOLLECT_CONFIG", os.devnull)
        assert {item.source for item in load().found.values()} == {"default"}


class TestDatabase:
    def test_the_order(self, write, monkeypatch):
        path = write('[db]\npath = "file.db"')
        assert config.database() == os.path.join(os.path.dirname(path), "file.db")
        monkeypatch.setenv("RECOLLECT_DB", "variable.db")
        assert config.database() == "variable.db"
        assert load().database == "variable.db"
        assert load({"--db": "option.db"}).database == "option.db"
        assert load({"--db": None}).database == "variable.db"

    @pytest.mark.parametrize(
        ("written", "wanted"),
        [
            ('path = "a.db"', "{folder}/a.db"),
            ('path = "../a.db"', "{folder}/../a.db"),
            ('path = "/abs/a.db"', "/abs/a.db"),
            ('path = "~/a.db"', "{home}/a.db"),
            ('path = ":memory:"', ":memory:"),
            ('url = "sqlite:///a b.db"', "sqlite:///{folder}/a b.db"),
            ('url = "sqlite:////abs/a.db"', "sqlite:////abs/a.db"),
            ('url = "sqlite:///~/a.db"', "sqlite:///~/a.db"),
            ('url = "sqlite://"', "sqlite://"),
            ('url = "sqlite:///:memory:"', "sqlite:///:memory:"),
            ('url = "postgresql://h/x"', "postgresql://h/x"),
        ],
    )
    def test_where_it_is(self, write, tmp_path, written, wanted):
        folder = os.path.dirname(write(f"[db]\n{written}"))
        assert config.database() == wanted.format(folder=folder, home=tmp_path / "home")

    def test_a_relative_url_leads_to_the_file_beside_the_settings(self, tmp_path, monkeypatch):
        from recollect.engine.url import target

        folder = tmp_path / "odd %41 #name?"
        folder.mkdir()
        (folder / "c.toml").write_text('[db]\nurl = "sqlite:///a%20b.db"', encoding="utf-8")
        monkeypatch.setenv("RECOLLECT_CONFIG", str(folder / "c.toml"))
        assert target(None).path == str(folder / "a b.db")

    def test_a_variable_that_is_a_url_takes_the_place_of_a_path(self, write, monkeypatch):
        write('[db]\npath = "a.db"')
        monkeypatch.setenv("RECOLLECT_DB", "sqlite:///b.db")
        found = load()
        assert (found["db.path"], found["db.url"]) == (None, "sqlite:///b.db")

    def test_without_a_file_nothing_is_loaded_for_it(self):
        code = (
            "import sys; from recollect import config; config.database()\n"
            "print([name for name in sys.modules if name == 'tomllib' or name.startswith('recollect.config.')])"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == "[]\n"


class TestFile:
    def test_every_setting(self, write):
        tables: dict[str, list[str]] = {}
        for setting in SETTINGS.values():
            table, _, key = setting.name.rpartition(".")
            if setting.name != "db.url":
                tables.setdefault(table, []).append(f"{key} = {setting.example}")
        write("\n".join(f"[{table}]\n" + "\n".join(keys) for table, keys in tables.items()))
        found = load()
        assert {name for name, item in found.found.items() if item.source == "file"} == set(SETTINGS) - {"db.url"}
        assert found["retention.max_age"] == 365 * 86_400_000
        assert found["retention.max_messages"] == 10_000
        assert found["channels.discord.allow"] == ("1234",)
        assert found["channels.terminal.markdown"] is False

    def test_any_notation(self, write):
        path = write(
            "# first\r\n\r\nserver.port = 1\r\n"
            'channels = { terminal = { markdown = false }, discord = { allow = [\r\n "a",\r\n "b",\r\n] } }\r\n'
            '[model]\r\n\r\n# about the name\r\n"name" = """\r\nmany\r\nlines"""\r\n'
        )
        found = load()
        assert found["model.name"] == "many\nlines"
        lines = found.lines()
        wanted = {
            "server.port": 3,
            "channels.terminal.markdown": 4,
            "channels.discord.allow": 4,
            "model": 8,
            "model.name": 11,
        }
        assert {name: lines[name] for name in wanted} == wanted
        assert found.found["server.port"].place == path

    def test_a_mark_at_the_beginning(self, write):
        write(b"\xef\xbb\xbf[server]\nport = 7\n")
        assert load()["server.port"] == 7

    @pytest.mark.parametrize(
        ("text", "line", "told"),
        [
            ('[db]\npaht = "x"', 2, "there is no setting db.paht. Did you mean db.path?"),
            ('\n\n[dbb]\npath = "x"', 3, "there is no table [dbb]. Did you mean [db]?"),
            ('[db]\npath = "x"\n[channels.discrod]\ntoken = "x"', 3, "Did you mean [channels.discord]?"),
            ('[model]\nmax_age = "90d"', 2, "Did you mean retention.max_age?"),
            ("port = 80", 1, "Did you mean server.port?"),
            ("[zzz]\na = 1", 1, "The tables are: "),
            ("[db]\nqqqqqqqq = 1", 2, "The settings are: "),
            ('model = "x"', 1, "model is a table: write [model]"),
            ("[[server]]\nport = 1", 1, "server is a table"),
            ('[server]\n# the port\nport = "80"', 3, "server.port is a number from 1 to 65535; got '80'."),
            ("[server]\nport = 65536", 2, "from 1 to 65535"),
            ("[server]\nport = true", 2, "got True"),
            ("[server]\nport = 1.5", 2, "got 1.5"),
            ('[server]\nhost = ""', 2, "a text in quotes"),
            ("[retention]\nmax_age = 90", 2, 'a duration in quotes, such as "90d" or "12h"; got 90.'),
            ('[retention]\nmax_age = "90"', 2, "such as"),
            ('[retention]\nmax_age = "0d"', 2, "at least a millisecond"),
            ("[retention]\nmax_messages = 0", 2, "from 1 on"),
            ("[retention]\nmax_messages = -5", 2, "from 1 on"),
            ('[channels.discord]\nallow = "a"', 2, "a list of texts"),
            ("[channels.discord]\nallow = [\n1,\n]", 2, "a list of texts"),
            ('[channels.terminal]\nmarkdown = "no"', 2, "true or false"),
            ('[db]\npath = "postgres://x"', 2, "call it url"),
            ('[db]\nurl = "a.db"', 2, "call it path"),
            ('[db]\npath = "a"\nurl = "sqlite:///b"', 3, "Keep one of them."),
            ('[db]\nurl = "sqlite:///b"\npath = "a"', 2, "Keep one of them."),
            ('[db]\npath = "a', 2, "this is not TOML"),
            ("[db]\npath = a", 2, "this is not TOML"),
            ('[db]\npath = "a"\npath = "b"', 3, "this is not TOML"),
            ('[db]\n\npath = """a', 3, "this is not TOML"),
            ('[db]\npath = "a\\u0000"', 2, "a path in quotes"),
        ],
    )  # fmt: skip
    def test_what_is_wrong_and_where(self, write, text, line, told):
        path = write(text)
        with pytest.raises(InvalidConfig) as caught:
            load()
        assert str(caught.value).startswith(f"{path}, line {line}: ")
        assert told in str(caught.value)
        assert (caught.value.path, caught.value.line) == (path, line)
        assert isinstance(caught.value, InvalidValue)
        with pytest.raises(InvalidConfig):
            config.database()

    @pytest.mark.parametrize("text", ["[model]\napi_key = 5", '[db]\nurl = "hunter2"', "[server]\ntoken = ['hunter2']"])
    def test_an_error_does_not_tell_a_secret(self, write, text):
        write(text)
        with pytest.raises(InvalidConfig) as caught:
            load()
        assert "hunter2" not in str(caught.value)

    def test_what_is_no_text(self, write):
        write(b"[db]\npath = '\xff'")
        with pytest.raises(InvalidConfig, match="UTF-8"):
            load()

    def test_a_folder(self, tmp_path, monkeypatch):
        monkeypatch.setenv("RECOLLECT_CONFIG", str(tmp_path))
        with pytest.raises(InvalidConfig, match="can not be read"):
            load()

    def test_nested_without_end(self, write):
        write("a = " + "[" * 50_000)
        with pytest.raises(InvalidConfig):
            load()

    @calm
    @given(st.text(max_size=60))
    def test_no_text_is_anything_but_settings_or_an_error_with_a_line(self, text):
        try:
            toml.settings("c.toml", text)
        except InvalidConfig as error:
            assert error.line >= 1  # noqa: PT017  most texts are wrong, and some are not


class TestEnvironment:
    @pytest.mark.parametrize(
        ("variable", "text", "name", "value"),
        [
            ("RECOLLECT_MODEL", "m", "model.name", "m"),
            ("RECOLLECT_PORT", "80", "server.port", 80),
            ("RECOLLECT_MAX_AGE", "1h30m", "retention.max_age", 5_400_000),
            ("RECOLLECT_MARKDOWN", "OFF", "channels.terminal.markdown", False),
            ("RECOLLECT_MARKDOWN", "1", "channels.terminal.markdown", True),
            ("RECOLLECT_DISCORD_ALLOW", "a, b,,c ", "channels.discord.allow", ("a", "b", "c")),
        ],
    )
    def test_a_value(self, monkeypatch, variable, text, name, value):
        monkeypatch.setenv(variable, text)
        found = load()
        assert found[name] == value
        assert (found.found[name].source, found.found[name].place) == ("environment", variable)

    @pytest.mark.parametrize(
        ("variable", "text", "told"),
        [
            ("RECOLLECT_PORT", "http", "RECOLLECT_PORT is a number from 1 to 65535; got 'http'."),
            ("RECOLLECT_PORT", "9" * 5000, "RECOLLECT_PORT is "),
            ("RECOLLECT_MAX_AGE", "soon", "RECOLLECT_MAX_AGE is a duration, such as 90d or 12h; got 'soon'."),
            ("RECOLLECT_MARKDOWN", "maybe", "RECOLLECT_MARKDOWN is true or false; got 'maybe'."),
        ],
    )
    def test_what_is_wrong(self, monkeypatch, variable, text, told):
        monkeypatch.setenv(variable, text)
        with pytest.raises(InvalidConfig) as caught:
            load()
        assert str(caught.value).startswith(told)

    def test_every_setting_has_a_variable_of_its_own(self):
        variables = [setting.variable for setting in SETTINGS.values() if setting.name != "db.url"]
        assert len(set(variables)) == len(variables)
        assert all(variable.startswith("RECOLLECT_") for variable in variables)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90d", 7_776_000), ("12h", 43_200), ("30m", 1800), ("45s", 45), ("2w", 1_209_600), ("1y", 31_536_000), ("1h30m", 5400),
     ("2 weeks", 1_209_600), ("1 day, 6 hours", 108_000), ("1.5h", 5400), ("1 month", 2_592_000), (" 5 MINUTES ", 300)],
)  # fmt: skip
def test_durations(text, seconds):
    assert duration(text) == seconds * 1000


@pytest.mark.parametrize(
    "text", ["", "90", "d", "-1d", "0s", "500ms", "1d2", "1e3d", "٣d", "d90", "9" * 40 + "d", "1d;", "nan d"]
)
def test_no_durations(text):
    with pytest.raises(ValueError):
        duration(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [("2GB", 2 * 10**9), ("500 MiB", 500 << 20), ("4096", 4096), ("1.5k", 1500), ("64KiB", 65536), ("7b", 7)],
)
def test_sizes(text, value):
    assert size(text) == value


@pytest.mark.parametrize("text", ["", "GB", "-1", "0", "1PB", "1GB2MB", "9" * 30, "1 2"])
def test_no_sizes(text):
    with pytest.raises(ValueError):
        size(text)


@pytest.mark.parametrize(
    ("name", "written", "shown"),
    [
        ("model.api_key", "sk-1", "********"),
        ("model.api_key", None, None),
        ("db.url", "postgresql://me:p@ss:w/rd@h:5/x", "postgresql://me:********@h:5/x"),
        (
            "db.url",
            "postgresql://h/x?user=me&password=p&sslkey=k",
            "postgresql://h/x?user=me&password=********&sslkey=********",
        ),
        ("model.base_url", "https://u:p@h/v1", "https://u:********@h/v1"),
        ("db.path", "a@b:c.db", "a@b:c.db"),
        ("channels.discord.allow", ("a",), ["a"]),
    ],
)
def test_what_may_be_shown(name, written, shown):
    assert masked(SETTINGS[name], written) == shown


@calm
@given(st.text(max_size=30))
def test_no_text_takes_long_or_breaks_the_readers(text):
    for read in (duration, size):
        with contextlib.suppress(ValueError):
            assert read(text) >= 1


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("mcp = 1", 1, "mcp is a table"),
        ("[mcp]\nx = 1", 2, "mcp.x is a table"),
        ("[mcp.x]\n", 1, "needs a command or a url"),
        ('[mcp.x]\ncommand = ["a"]\nurl = "http://b"', 1, "one of them only"),
        ('[mcp.x]\ncommand = "a b"', 2, "a list of texts"),
        ("[mcp.x]\ncommand = []", 2, "a list of texts"),
        ('[mcp.x]\nurl = "ftp://b"', 2, "http:// or https://"),
        ('[mcp.x]\ncommand = ["a"]\nenv = { A = 1 }', 3, "a table of texts"),
        ('[mcp.x]\ncommand = ["a"]\nheaders = { A = "b" }', 3, "goes with a url"),
        ('[mcp.x]\nurl = "http://b"\nenv = { A = "b" }', 3, "goes with a command"),
        ('[mcp.x]\ncommand = ["a"]\ntimeout = 0', 3, "a number of seconds"),
        ('[mcp.x]\ncommand = ["a"]\nenabled = "yes"', 3, "true or false"),
        ('[mcp.x]\ncommand = ["a"]\nargs = ["b"]', 3, "there is no setting mcp.x.args"),
        ('[mcp."a b"]\ncommand = ["a"]', 1, "can not be the name of a server"),
    ],
)
def test_a_server_that_is_written_wrongly_is_named_with_its_line(tmp_path, monkeypatch, text, line, told):
    path = tmp_path / "config.toml"
    path.write_text(text)
    monkeypatch.setenv("RECOLLECT_CONFIG", str(path))
    with pytest.raises(InvalidConfig, match=re.escape(told)) as caught:
        load()
    assert caught.value.line == line


def test_servers_are_read(tmp_path, monkeypatch):
    path = tmp_path / "config.toml"
    path.write_text('[mcp.x]\ncommand = ["a", "b"]\nenv = { A = "1" }\ntimeout = 2.5\n[mcp.y]\nurl = "http://c"\n')
    monkeypatch.setenv("RECOLLECT_CONFIG", str(path))
    one, other = load().servers
    assert (one.name, one.command, one.env, one.timeout, one.enabled) == ("x", ("a", "b"), {"A": "1"}, 2.5, True)
    assert (other.url, other.command) == ("http://c", ())
