"""`recollect config`: the values of the settings, their sources, and the commands that use them."""

from __future__ import annotations

import json
import os
import stat

import pytest

import recollect
from recollect.config.settings import SETTINGS


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "home" / ".config" / "recollect" / "config.toml"
    path.parent.mkdir(parents=True)

    def file(text: str) -> str:
        path.write_text(text, encoding="utf-8")
        path.chmod(0o600)
        return str(path)

    return file


def read_config(call, *arguments, **variables):
    document = json.loads(call(*arguments, "config", "--json", **variables).stdout)
    return document, {setting["name"]: setting for setting in document["settings"]}


def test_without_a_file_everything_is_a_default_or_from_the_environment(call, tmp_path, path):
    document, settings = read_config(call)
    assert document["file"] == str(tmp_path / "home/.config/recollect/config.toml")
    assert document["exists"] is False
    assert set(settings) == set(SETTINGS)
    assert settings["db.path"] == {
        "name": "db.path", "value": path, "source": "environment", "place": "RECOLLECT_DB", "line": None, "variable": "RECOLLECT_DB",
    }  # fmt: skip
    assert {item["source"] for name, item in settings.items() if name != "db.path"} == {"default"}


def test_each_value_names_its_source(call, file):
    path = file('[db]\npath = "a.db"\n\n[server]\nport = 1\nhost = "h"\n\n[model]\napi_key = "sk-very-secret"\n')
    document, settings = read_config(call, "--db", "mine.db", RECOLLECT_PORT="99")
    assert document["exists"] is True
    values = {name: (item["value"], item["source"], item["place"], item["line"]) for name, item in settings.items()}
    assert values["db.path"] == ("mine.db", "option", "--db", None)
    assert values["server.port"] == ("99", "environment", "RECOLLECT_PORT", None)
    assert values["server.host"] == ("h", "file", path, 6)
    assert values["model.api_key"] == ("********", "file", path, 9)


def test_lines_for_programs(call, file):
    path = file("[server]\nport = 4711\n")
    lines = [line.split("\t") for line in call("config").stdout.splitlines()]
    assert ["server.port", "4711", f"{path}:2", "RECOLLECT_PORT"] in lines
    assert ["model.name", "", "default", "RECOLLECT_MODEL"] in lines
    assert len(lines) == len(SETTINGS)


def test_on_a_terminal(terminal, file):
    file('[model]\nname = "evil \\u001b[31m"\n')
    screen = terminal("config", columns=100)
    assert "line 2" in screen
    assert "evil ␛[31m" in screen


def test_secrets_are_never_shown(call, terminal, file):
    file(
        '[db]\nurl = "postgresql://me:hunter2@host/x"\n[model]\napi_key = "hunter2"\n[server]\ntoken = "hunter2"\n'
        '[channels.discord]\ntoken = "hunter2"\n[channels.telegram]\ntoken = "hunter2"\n'
    )
    for result in (call("config", RECOLLECT_DB=""), call("config", "--json", RECOLLECT_DB="")):
        assert "hunter2" not in result.stdout + result.stderr
        assert "********" in result.stdout


def test_a_file_that_others_can_read_prints_a_warning(call, file):
    path = file('[model]\napi_key = "x"\n')
    assert call("config").stderr == ""
    os.chmod(path, 0o644)
    assert "chmod 600" in call("config").stderr


def test_an_error_names_the_file_and_the_line(call, file):
    path = file('[db]\n\n# where\npaht = "a.db"\n')
    result = call("sessions", "list", code=1, RECOLLECT_DB="")
    assert result.stderr == f"recollect: {path}, line 4: unknown setting db.paht. Did you mean db.path?\n"


def test_an_explicit_database_needs_no_valid_config_file(call, file):
    file("nonsense")
    call("--db", "other.db", "sessions", "list")
    call("sessions", "list")


def test_the_database_of_the_file_is_used_by_command_and_library(call, file, monkeypatch, tmp_path):
    path = file('[db]\npath = "data/mine.db"\n')
    expected = os.path.join(os.path.dirname(path), "data", "mine.db")
    assert call("db", "path", RECOLLECT_DB="").stdout == expected + "\n"
    for name in ("RECOLLECT_DB", "RECOLLECT_CONFIG", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with recollect.open() as store:
        assert store.path == expected
        store.session("cli:there")
    assert call("sessions", "list", RECOLLECT_DB="").stdout.startswith("cli:there\t")


def test_path_and_init(call, tmp_path):
    path = str(tmp_path / "new" / "r.toml")
    assert call("config", "path", RECOLLECT_CONFIG=path).stdout == path + "\n"
    assert call("config", code=1, RECOLLECT_CONFIG=path).stderr.startswith("recollect: RECOLLECT_CONFIG names ")
    call("config", "init", RECOLLECT_CONFIG=path)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    _, settings = read_config(call, RECOLLECT_CONFIG=path, RECOLLECT_DB="")
    assert {item["source"] for item in settings.values()} == {"default"}
    with open(path, encoding="utf-8") as file:
        before = file.read()
    assert "already exists and was not changed" in call("config", "init", code=4, RECOLLECT_CONFIG=path).stderr
    with open(path, encoding="utf-8") as file:
        assert file.read() == before


def test_a_generated_token_is_valid_for_the_server(call):
    from recollect.server.access_token import validate_tokens

    tokens = {call("config", "token").stdout.strip() for _ in range(3)}
    assert len(tokens) == 3
    assert all(validate_tokens({"": token}) == {token: ""} for token in tokens)


def test_the_template_without_comment_signs_is_a_valid_file(call, tmp_path):
    from recollect.cli.config import config_template

    lines = [line.removeprefix("# ") if " = " in line else line for line in config_template().splitlines()]
    text = "\n".join(line for line in lines if not line.startswith("url"))
    path = tmp_path / "all.toml"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    _, settings = read_config(call, RECOLLECT_CONFIG=str(path), RECOLLECT_DB="")
    assert {name for name, item in settings.items() if item["source"] == "file"} == set(SETTINGS) - {"db.url"}


def test_mcp_servers_are_shown_without_their_secrets(call, file):
    path = file(
        '[mcp.files]\ncommand = ["serve", "--token", "s3cret", "--api-key=s3cret", "--read-only"]\nenv = { KEY = "s3cret" }\n'
        '[mcp.docs]\nurl = "https://ann:s3cret@docs.example/mcp"\nheaders = { Auth = "s3cret" }\nenabled = false\n'
    )
    _, settings = read_config(call)
    hidden = "********"
    value = f"serve --token {hidden} --api-key={hidden} --read-only KEY={hidden}"
    assert settings["mcp.files"] == {
        "name": "mcp.files", "value": value, "source": "file", "place": path, "line": 1, "variable": None,
    }  # fmt: skip
    assert settings["mcp.docs"]["value"] == f"https://ann:{hidden}@docs.example/mcp Auth={hidden} (not enabled)"
    assert settings["mcp.docs"]["line"] == 4
    assert "s3cret" not in call("config").stdout
