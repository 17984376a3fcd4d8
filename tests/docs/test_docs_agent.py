"""docs/reference/agent.md and docs/how-to/chat.md document every method, event and command, and the examples run."""

from __future__ import annotations

import inspect

import pytest
from docs_pages import ARROW, find_blocks, find_identifiers, find_section, read_page, run_example, split_sections

from recollect import agent
from recollect.agent.commands import COMMANDS, CommandOutcome
from recollect.agent.events import Event

PAGE = "docs/reference/agent.md"
CLASSES = {"agent": agent.Agent, "conversation": agent.Conversation}


def list_public_names(cls):
    return [name for name in vars(cls) if not name.startswith("_")]


def format_parameter(parameter):
    """Return a parameter as the section titles write it, such as `wait=0.0` or `**fields`."""
    return str(parameter.replace(annotation=inspect.Parameter.empty)).replace("'", '"')


METHODS = [(noun, name) for noun, cls in CLASSES.items() for name in list_public_names(cls)]


@pytest.mark.parametrize(("noun", "name"), METHODS)
def test_every_method_is_documented_with_its_arguments(noun, name):
    value = inspect.getattr_static(CLASSES[noun], name)
    if isinstance(value, property):
        assert f"`{noun}.{name}`" in read_page(PAGE)
        return
    section = find_section(PAGE, f"{noun}.{name}")
    documented_arguments = section.title.partition("(")[2].removesuffix(")").split(", ")
    parameters = [parameter for parameter in inspect.signature(value).parameters.values() if parameter.name != "self"]
    assert [text for text in documented_arguments if text not in ("*", "")] == [
        format_parameter(item) for item in parameters
    ]
    identifiers = find_identifiers(section.text)
    assert [parameter.name for parameter in parameters if parameter.name not in identifiers] == []


@pytest.mark.parametrize("function", [agent.Agent, agent.agent_from_config])
def test_the_arguments_of_a_new_agent_are_documented(function):
    section = next(item for item in split_sections(PAGE) if item.title.startswith(f"{function.__name__}("))
    parameters = list(inspect.signature(function).parameters.values())
    arguments = ", ".join(map(format_parameter, parameters))
    assert section.title.replace(" *,", "") == f"{function.__name__}({arguments})"
    assert [item.name for item in parameters if item.name not in find_identifiers(section.text)] == []


def test_every_public_name_is_documented():
    assert [
        name
        for name in agent.__all__
        if name not in find_identifiers(read_page(PAGE)) and f"# {name}" not in read_page(PAGE)
    ] == []


def test_every_event_is_documented_with_its_fields():
    text = find_section(PAGE, "Events").text
    for event in Event.__subclasses__():
        row = next(line for line in text.splitlines() if line.startswith(f"| `{event.__name__}` |"))
        assert f"`{event.__struct_config__.tag}`" in row
        assert [name for name in event.__struct_fields__ if f"`{name}`" not in row] == []


def test_every_field_of_an_answer_and_of_a_command_outcome_is_documented():
    assert set(agent.Answer.__struct_fields__) <= find_identifiers(find_section(PAGE, "conversation.ask").text)
    assert set(CommandOutcome.__struct_fields__) <= find_identifiers(find_section(PAGE, "Slash commands").text)


def test_every_slash_command_is_documented_in_the_chat_guide():
    text = find_section("docs/how-to/chat.md", "Commands").text
    assert [name for name in COMMANDS if f"`/{name}" not in text] == []
    for command in COMMANDS.values():
        assert not command.arguments or f"`{command.usage}`" in text


def test_the_examples_run_in_order_as_one_program(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RECOLLECT_DB", str(tmp_path / "store.db"))
    namespace = {"__name__": "example"}
    count = sum(run_example(PAGE, block, namespace) for block in find_blocks(PAGE))
    assert count == read_page(PAGE).count(ARROW) >= 5
    assert capsys.readouterr().out == "6 * 7 = **42**"


def test_the_first_example_has_at_most_twelve_lines():
    code = [line for line in find_blocks(PAGE)[0].text.splitlines() if line.strip()]
    assert len(code) <= 12
