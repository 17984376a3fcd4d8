"""Settings: the options override the environment, which overrides the file; errors name the line."""

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
from recollect.config import toml_file
from recollect.config.loader import load_config
from recollect.config.settings import SETTINGS, mask_value, parse_positive_duration, parse_size
from recollect.errors import InvalidConfig, InvalidValue

no_deadline = settings(  # other programs may slow the machine down
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


@pytest.fixture(autouse=True)
def empty_environment(tmp_path, monkeypatch):
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


class TestLocations:
    def test_linux(self, tmp_path, monkeypatch):
        monkeypatch.setattr(sys, "platform", "linux")
        assert config.config_file() == str(tmp_path / "home/.config/recollect/config.toml")
        assert config.default_database() == str(tmp_path / "home/.local/share/recollect/recollect.db")
        monkeypatch.setenv("XDG_CONFIG_HOME", "/c")
        monkeypatch.setenv("XDG_DATA_HOME", "/d")
        assert config.config_file() == "/c/recollect/config.toml"
        assert config.default_database() == "/d/recollect/recollect.db"

    def test_macos(self, tmp_path, monkeypatch):
        monkeypatch.setattr(sys, "platform", "darwin")
        monkeypatch.setenv("XDG_CONFIG_HOME", "/c")
        folder = tmp_path / "home/Library/Application Support/recollect"
        assert config.config_file() == str(folder / "config.toml")
        assert config.default_database() == str(folder / "recollect.db")

    def test_windows(self, monkeypatch):
        monkeypatch.setattr(sys, "platform", "win32")
        monkeypatch.setenv("APPDATA", "C:\\Roaming")
        monkeypatch.setenv("LOCALAPPDATA", "C:\\Local")
        assert config.config_file().startswith("C:\\Roaming")
        assert config.default_database().startswith("C:\\Local")

    def test_a_named_file_must_exist(self, monkeypatch):
        monkeypatch.setenv("RECOLLECT_CONFIG", "~/none.toml")
        with pytest.raises(InvalidConfig, match=r"RECOLLECT_CONFIG names .*/home/none.toml"):
            config.database()

    def test_an_empty_file_name_is_ignored(self, monkeypatch):
        monkeypatch.setenv("RECOLLECT_CONFIG", "")
        assert load_config().exists is False

    def test_an_empty_file_sets_nothing(self, monkeypatch):
        monkeypatch.setenv("RECOLLECT_CONFIG", os.devnull)
        assert {item.source for item in load_config().values.values()} == {"default"}


class TestDatabase:
    def test_options_override_the_environment_and_the_environment_the_file(self, write, monkeypatch):
        path = write('[db]\npath = "file.db"')
        assert config.database() == os.path.join(os.path.dirname(path), "file.db")
        monkeypatch.setenv("RECOLLECT_DB", "variable.db")
        assert config.database() == "variable.db"
        assert load_config().database == "variable.db"
        assert load_config({"--db": "option.db"}).database == "option.db"
        assert load_config({"--db": None}).database == "variable.db"

    @pytest.mark.parametrize(
        ("line", "expected"),
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
    def test_the_location_of_the_database(self, write, tmp_path, line, expected):
        folder = os.path.dirname(write(f"[db]\n{line}"))
        assert config.database() == expected.format(folder=folder, home=tmp_path / "home")

    def test_a_relative_url_is_relative_to_the_settings_file(self, tmp_path, monkeypatch):
        from recollect.engine.url import parse_target

        folder = tmp_path / "odd %41 #name?"
        folder.mkdir()
        (folder / "c.toml").write_text('[db]\nurl = "sqlite:///a%20b.db"', encoding="utf-8")
        monkeypatch.setenv("RECOLLECT_CONFIG", str(folder / "c.toml"))
        assert parse_target(None).path == str(folder / "a b.db")

    def test_a_url_in_the_environment_replaces_a_path_in_the_file(self, write, monkeypatch):
        write('[db]\npath = "a.db"')
        monkeypatch.setenv("RECOLLECT_DB", "sqlite:///b.db")
        loaded_config = load_config()
        assert (loaded_config["db.path"], loaded_config["db.url"]) == (None, "sqlite:///b.db")

    def test_without_a_file_no_toml_parser_is_imported(self):
        code = (
            "import sys; from recollect import config; config.database()\n"
            "print([name for name in sys.modules if name == 'tomllib' or name.startswith('recollect.config.')])"
        )
        process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert process.stdout == "[]\n"


class TestFile:
    def test_every_setting_is_read_from_the_file(self, write):
        tables: dict[str, list[str]] = {}
        for setting in SETTINGS.values():
            table, _, key = setting.name.rpartition(".")
            if setting.name != "db.url":
                tables.setdefault(table, []).append(f"{key} = {setting.example}")
        write("\n".join(f"[{table}]\n" + "\n".join(keys) for table, keys in tables.items()))
        loaded_config = load_config()
        assert {name for name, item in loaded_config.values.items() if item.source == "file"} == set(SETTINGS) - {
            "db.url"
        }
        assert loaded_config["retention.max_age"] == 365 * 86_400_000
        assert loaded_config["retention.max_messages"] == 10_000
        assert loaded_config["channels.discord.allow"] == ("1234",)
        assert loaded_config["channels.terminal.markdown"] is False

    def test_every_toml_notation_is_read(self, write):
        path = write(
            "# first\r\n\r\nserver.port = 1\r\n"
            'channels = { terminal = { markdown = false }, discord = { allow = [\r\n "a",\r\n "b",\r\n] } }\r\n'
            '[model]\r\n\r\n# about the name\r\n"name" = """\r\nmany\r\nlines"""\r\n'
        )
        loaded_config = load_config()
        assert loaded_config["model.name"] == "many\nlines"
        lines = loaded_config.lines()
        expected = {
            "server.port": 3,
            "channels.terminal.markdown": 4,
            "channels.discord.allow": 4,
            "model": 8,
            "model.name": 11,
        }
        assert {name: lines[name] for name in expected} == expected
        assert loaded_config.values["server.port"].origin == path

    def test_a_byte_order_mark_is_ignored(self, write):
        write(b"\xef\xbb\xbf[server]\nport = 7\n")
        assert load_config()["server.port"] == 7

    @pytest.mark.parametrize(
        ("text", "line", "message"),
        [
            ('[db]\npaht = "x"', 2, "unknown setting db.paht. Did you mean db.path?"),
            ('\n\n[dbb]\npath = "x"', 3, "unknown table [dbb]. Did you mean [db]?"),
            ('[db]\npath = "x"\n[channels.discrod]\ntoken = "x"', 3, "Did you mean [channels.discord]?"),
            ('[model]\nmax_age = "90d"', 2, "Did you mean retention.max_age?"),
            ("port = 80", 1, "Did you mean server.port?"),
            ("[zzz]\na = 1", 1, "The tables are: "),
            ("[db]\nqqqqqqqq = 1", 2, "The settings are: "),
            ('model = "x"', 1, "model must be a table. Write [model]"),
            ("[[server]]\nport = 1", 1, "server must be a table"),
            ('[server]\n# the port\nport = "80"', 3, "server.port must be an integer between 1 and 65535, got '80'."),
            ("[server]\nport = 65536", 2, "between 1 and 65535"),
            ("[server]\nport = true", 2, "got True"),
            ("[server]\nport = 1.5", 2, "got 1.5"),
            ('[server]\nhost = ""', 2, "a string in quotes"),
            ("[retention]\nmax_age = 90", 2, 'a duration in quotes, such as "90d" or "12h", got 90.'),
            ('[retention]\nmax_age = "90"', 2, "such as"),
            ('[retention]\nmax_age = "0d"', 2, "at least one millisecond"),
            ("[retention]\nmax_messages = 0", 2, "a positive integer"),
            ("[retention]\nmax_messages = -5", 2, "a positive integer"),
            ('[channels.discord]\nallow = "a"', 2, "a list of strings"),
            ("[channels.discord]\nallow = [\n1,\n]", 2, "a list of strings"),
            ('[channels.terminal]\nmarkdown = "no"', 2, "true or false"),
            ('[db]\npath = "postgres://x"', 2, "use the setting url"),
            ('[db]\nurl = "a.db"', 2, "use the setting path"),
            ('[db]\npath = "a"\nurl = "sqlite:///b"', 3, "must have either a path or a url, got both."),
            ('[db]\nurl = "sqlite:///b"\npath = "a"', 2, "must have either a path or a url, got both."),
            ('[db]\npath = "a', 2, "invalid TOML"),
            ("[db]\npath = a", 2, "invalid TOML"),
            ('[db]\npath = "a"\npath = "b"', 3, "invalid TOML"),
            ('[db]\n\npath = """a', 3, "invalid TOML"),
            ('[db]\npath = "a\\u0000"', 2, "a path in quotes"),
        ],
    )  # fmt: skip
    def test_an_error_names_the_mistake_and_its_line(self, write, text, line, message):
        path = write(text)
        with pytest.raises(InvalidConfig) as excinfo:
            load_config()
        assert str(excinfo.value).startswith(f"{path}, line {line}: ")
        assert message in str(excinfo.value)
        assert (excinfo.value.path, excinfo.value.line) == (path, line)  # pyright: ignore[reportAttributeAccessIssue]
        assert isinstance(excinfo.value, InvalidValue)
        with pytest.raises(InvalidConfig):
            config.database()

    @pytest.mark.parametrize("text", ["[model]\napi_key = 5", '[db]\nurl = "hunter2"', "[server]\ntoken = ['hunter2']"])
    def test_an_error_does_not_contain_a_secret(self, write, text):
        write(text)
        with pytest.raises(InvalidConfig) as excinfo:
            load_config()
        assert "hunter2" not in str(excinfo.value)

    def test_a_file_that_is_not_utf_8_is_refused(self, write):
        write(b"[db]\npath = '\xff'")
        with pytest.raises(InvalidConfig, match="UTF-8"):
            load_config()

    def test_a_folder_instead_of_a_file_is_refused(self, tmp_path, monkeypatch):
        monkeypatch.setenv("RECOLLECT_CONFIG", str(tmp_path))
        with pytest.raises(InvalidConfig, match="cannot be read"):
            load_config()

    def test_deep_nesting_is_refused(self, write):
        write("a = " + "[" * 50_000)
        with pytest.raises(InvalidConfig):
            load_config()

    @no_deadline
    @given(st.text(max_size=60))
    def test_any_text_is_parsed_or_refused_with_a_line(self, text):
        try:
            toml_file.parse_settings("c.toml", text)
        except InvalidConfig as error:
            assert error.line >= 1  # noqa: PT017  most texts are invalid, some are valid  # pyright: ignore[reportAttributeAccessIssue]


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
    def test_a_variable_sets_a_value(self, monkeypatch, variable, text, name, value):
        monkeypatch.setenv(variable, text)
        loaded_config = load_config()
        assert loaded_config[name] == value
        assert (loaded_config.values[name].source, loaded_config.values[name].origin) == ("environment", variable)

    @pytest.mark.parametrize(
        ("variable", "text", "message"),
        [
            ("RECOLLECT_PORT", "http", "RECOLLECT_PORT must be an integer between 1 and 65535, got 'http'."),
            ("RECOLLECT_PORT", "9" * 5000, "RECOLLECT_PORT must be "),
            ("RECOLLECT_MAX_AGE", "soon", "RECOLLECT_MAX_AGE must be a duration, such as 90d or 12h, got 'soon'."),
            ("RECOLLECT_MARKDOWN", "maybe", "RECOLLECT_MARKDOWN must be true or false, got 'maybe'."),
        ],
    )
    def test_an_invalid_variable_is_refused(self, monkeypatch, variable, text, message):
        monkeypatch.setenv(variable, text)
        with pytest.raises(InvalidConfig) as excinfo:
            load_config()
        assert str(excinfo.value).startswith(message)

    def test_every_setting_has_its_own_variable(self):
        variables = [setting.variable for setting in SETTINGS.values() if setting.name != "db.url"]
        assert len(set(variables)) == len(variables)
        assert all(variable.startswith("RECOLLECT_") for variable in variables)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90d", 7_776_000), ("12h", 43_200), ("30m", 1800), ("45s", 45), ("2w", 1_209_600), ("1y", 31_536_000), ("1h30m", 5400),
     ("2 weeks", 1_209_600), ("1 day, 6 hours", 108_000), ("1.5h", 5400), ("1 month", 2_592_000), (" 5 MINUTES ", 300)],
)  # fmt: skip
def test_durations(text, seconds):
    assert parse_positive_duration(text) == seconds * 1000


@pytest.mark.parametrize(
    "text", ["", "90", "d", "-1d", "0s", "500ms", "1d2", "1e3d", "٣d", "d90", "9" * 40 + "d", "1d;", "nan d"]
)
def test_invalid_durations_are_refused(text):
    with pytest.raises(ValueError):
        parse_positive_duration(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [("2GB", 2 * 10**9), ("500 MiB", 500 << 20), ("4096", 4096), ("1.5k", 1500), ("64KiB", 65536), ("7b", 7)],
)
def test_sizes(text, value):
    assert parse_size(text) == value


@pytest.mark.parametrize("text", ["", "GB", "-1", "0", "1PB", "1GB2MB", "9" * 30, "1 2"])
def test_invalid_sizes_are_refused(text):
    with pytest.raises(ValueError):
        parse_size(text)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
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
def test_secrets_are_masked(name, value, expected):
    assert mask_value(SETTINGS[name], value) == expected


@no_deadline
@given(st.text(max_size=30))
def test_any_text_is_a_positive_amount_or_a_value_error(text):
    for parse in (parse_positive_duration, parse_size):
        with contextlib.suppress(ValueError):
            assert parse(text) >= 1


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("mcp = 1", 1, "mcp must be a table"),
        ("[mcp]\nx = 1", 2, "mcp.x must be a table"),
        ("[mcp.x]\n", 1, "must have either a command or a url"),
        ('[mcp.x]\ncommand = ["a"]\nurl = "http://b"', 1, "must have either a command or a url"),
        ('[mcp.x]\ncommand = "a b"', 2, "a list of strings"),
        ("[mcp.x]\ncommand = []", 2, "a list of strings"),
        ('[mcp.x]\nurl = "ftp://b"', 2, "http:// or https://"),
        ('[mcp.x]\ncommand = ["a"]\nenv = { A = 1 }', 3, "a table of strings"),
        ('[mcp.x]\ncommand = ["a"]\nheaders = { A = "b" }', 3, "requires a url"),
        ('[mcp.x]\nurl = "http://b"\nenv = { A = "b" }', 3, "requires a command"),
        ('[mcp.x]\ncommand = ["a"]\ntimeout = 0', 3, "a number of seconds"),
        ('[mcp.x]\ncommand = ["a"]\nenabled = "yes"', 3, "true or false"),
        ('[mcp.x]\ncommand = ["a"]\nargs = ["b"]', 3, "unknown setting mcp.x.args"),
        ('[mcp."a b"]\ncommand = ["a"]', 1, "the name of a server must have at most 32"),
    ],
)
def test_an_invalid_mcp_server_is_refused_with_its_line(tmp_path, monkeypatch, text, line, message):
    path = tmp_path / "config.toml"
    path.write_text(text)
    monkeypatch.setenv("RECOLLECT_CONFIG", str(path))
    with pytest.raises(InvalidConfig, match=re.escape(message)) as excinfo:
        load_config()
    assert excinfo.value.line == line  # pyright: ignore[reportAttributeAccessIssue]


def test_mcp_servers_are_read(tmp_path, monkeypatch):
    path = tmp_path / "config.toml"
    path.write_text('[mcp.x]\ncommand = ["a", "b"]\nenv = { A = "1" }\ntimeout = 2.5\n[mcp.y]\nurl = "http://c"\n')
    monkeypatch.setenv("RECOLLECT_CONFIG", str(path))
    local, remote = load_config().servers
    assert (local.name, local.command, local.env, local.timeout, local.enabled) == (
        "x",
        ("a", "b"),
        {"A": "1"},
        2.5,
        True,
    )
    assert (remote.url, remote.command) == ("http://c", ())
