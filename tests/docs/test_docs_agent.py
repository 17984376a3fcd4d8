"""docs/agent.md and docs/chat.md name everything that can be called, and the examples run."""

from __future__ import annotations

import inspect

import pytest
from docs_pages import ARROW, blocks, names, read, run, section, sections

from recollect import agent
from recollect.agent.commands import COMMANDS, Outcome
from recollect.agent.events import Event

PAGE = "docs/agent.md"
CLASSES = {"agent": agent.Agent, "talk": agent.Conversation}


def public(kind):
    return [name for name in vars(kind) if not name.startswith("_")]


METHODS = [(noun, name) for noun, kind in CLASSES.items() for name in public(kind)]


@pytest.mark.parametrize(("noun", "name"), METHODS)
def test_a_method_is_described_with_its_arguments(noun, name):
    value = inspect.getattr_static(CLASSES[noun], name)
    if isinstance(value, property):
        assert f"`{noun}.{name}`" in read(PAGE)
        return
    found = section(PAGE, f"{noun}.{name}")
    shown = found.title.partition("(")[2].removesuffix(")").split(", ")
    given = [argument for argument in inspect.signature(value).parameters.values() if argument.name != "self"]
    written = [str(a.replace(annotation=inspect.Parameter.empty)).replace("'", '"') for a in given]
    assert [text for text in shown if text not in ("*", "")] == written
    known = names(found.text) | {"said"}
    assert [argument.name for argument in given if argument.name not in known] == []


def test_the_arguments_of_an_agent():
    made = next(found for found in sections(PAGE) if found.title.startswith("Agent("))
    given = list(inspect.signature(agent.Agent).parameters.values())
    written = ", ".join(str(a.replace(annotation=inspect.Parameter.empty)).replace("'", '"') for a in given)
    assert made.title.replace(" *,", "") == f"Agent({written})"
    assert [a.name for a in given if a.name not in names(made.text)] == []


def test_the_arguments_of_configured():
    made = next(found for found in sections(PAGE) if found.title.startswith("configured("))
    given = list(inspect.signature(agent.configured).parameters.values())
    written = ", ".join(str(a.replace(annotation=inspect.Parameter.empty)).replace("'", '"') for a in given)
    assert made.title.replace(" *,", "") == f"configured({written})"
    assert [a.name for a in given if a.name not in names(made.text)] == []


def test_every_public_name_is_mentioned():
    assert [name for name in agent.__all__ if name not in names(read(PAGE)) and f"# {name}" not in read(PAGE)] == []


def test_every_event_and_field_is_in_the_table():
    found = section(PAGE, "Events").text
    for kind in Event.__subclasses__():
        row = next(line for line in found.splitlines() if line.startswith(f"| `{kind.__name__}` |"))
        assert f"`{kind.__struct_config__.tag}`" in row
        assert [name for name in kind.__struct_fields__ if f"`{name}`" not in row] == []


def test_every_field_of_an_answer_and_an_outcome():
    assert set(agent.Answer.__struct_fields__) <= names(section(PAGE, "talk.ask").text)
    assert set(Outcome.__struct_fields__) <= names(section(PAGE, "Slash commands").text)


def test_every_slash_command_is_in_the_chat_page():
    found = section("docs/chat.md", "Commands").text
    assert [name for name in COMMANDS if f"`/{name}" not in found] == []
    for command in COMMANDS.values():
        assert not command.arguments or f"`{command.usage}`" in found


def test_the_examples_run_in_order_as_one_program(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RECOLLECT_DB", str(tmp_path / "store.db"))
    space = {"__name__": "example"}
    found = blocks(PAGE)
    compared = sum(run(PAGE, block, space) for block in found)
    assert compared == read(PAGE).count(ARROW) >= 5
    assert capsys.readouterr().out == "6 * 7 = **42**"


def test_the_first_example_is_short():
    code = [line for line in blocks(PAGE)[0].text.splitlines() if line.strip()]
    assert len(code) <= 12
