"""Every message and content part that AG-UI defines comes back equal, and is a valid history in every other format."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from framework_round_trips import assert_stored_equal
from framework_values import COUNT, RandomValues, alternatives_of

pydantic: Any = pytest.importorskip("pydantic")
core: Any = pytest.importorskip("ag_ui.core")

loader = pydantic.TypeAdapter(list[core.Message])


def dump(message: Any) -> dict[str, Any]:
    return message.model_dump(mode="json", by_alias=True)


assert_equal = functools.partial(assert_stored_equal, name="ag-ui", dump=dump, load=loader.validate_python)


def _kinds(union: Any) -> list[Any]:
    return [pytest.param(kind, id=kind.__name__) for kind in alternatives_of(union)]


def _message(kind: Any, values: RandomValues) -> Any:
    """Return a message with random fields; some have a field that the class does not declare."""
    message = values.instance(kind)
    return message.model_copy(update={"priority": 1}) if values.random.random() < 0.2 else message


@pytest.mark.parametrize("kind", _kinds(core.Message))
def test_messages(kind: Any) -> None:
    values = RandomValues(kind.__name__)
    assert_equal([_message(kind, values) for _ in range(COUNT)])


@pytest.mark.parametrize("kind", _kinds(core.ContentPart))
@pytest.mark.parametrize("source", _kinds(core.PartSource))
@pytest.mark.parametrize("message", [core.UserMessage, core.ToolMessage])
def test_content_parts(kind: Any, source: Any, message: Any) -> None:
    values = RandomValues(f"{kind.__name__} {source.__name__} {message.__name__}")
    constants = {} if kind is core.TextPart else {"source": values.instance(source)}
    content = [[values.instance(kind, constants=constants), values.value(core.ContentPart)] for _ in range(COUNT)]
    assert_equal([values.instance(message, constants={"content": parts}) for parts in content])


def test_conversations_of_several_messages() -> None:
    values = RandomValues("several")
    kinds = alternatives_of(core.Message)
    assert_equal([_message(values.random.choice(kinds), values) for _ in range(COUNT * 3)])
