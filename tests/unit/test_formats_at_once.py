"""The short way to read a common message gives what the long way gives."""

from __future__ import annotations

import pytest

from recollect import formats
from recollect.formats import anthropic, openai, registry
from recollect.formats.guess import guess

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
BARE = [
    (openai, {"role": "assistant", "content": None, "tool_calls": [CALL]}),
    (openai, {"role": "assistant", "content": "I look", "tool_calls": [CALL, {**CALL, "id": "c2"}]}),
    (openai, {"role": "assistant", "content": "", "tool_calls": [CALL]}),
    (openai, {"role": "tool", "tool_call_id": "c1", "content": "found"}),
    (openai, {"role": "tool", "tool_call_id": "", "content": ""}),
    (anthropic, {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"a": [1]}}]}),
    (
        anthropic,
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look"},
                {"type": "tool_use", "id": "t", "name": "f", "input": None},
            ],
        },
    ),
    (anthropic, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "found"}]}),
]


@pytest.mark.parametrize(("module", "message"), BARE)
def test_it_gives_what_the_long_way_gives(module, message):
    short = module.read_at_once(message)
    assert short is not None
    assert [short] == module.read(message) == formats.read(message) == formats.read(message, module.NAME)
    assert guess(message) == module.NAME


@pytest.mark.parametrize("role", ["user", "assistant", "system"])
@pytest.mark.parametrize("name", formats.FORMATS)
def test_a_role_with_a_string_is_read_as_its_format_reads_it(name, role):
    message = {"role": role, "content": "a text"}
    assert formats.read(message, name) == registry._named(name).read(message)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "assistant", "content": None, "tool_calls": [{**CALL, "index": 0}]},
        {"role": "assistant", "content": None, "tool_calls": [{**CALL, "type": "custom"}]},
        {"role": "assistant", "content": None, "tool_calls": [{**CALL, "function": {"name": "f", "arguments": {}}}]},
        {"role": "assistant", "content": [], "tool_calls": [CALL]},
        {"role": "assistant", "refusal": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": 5, "content": "x"},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "x"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "x"}]},
        {"role": "assistant", "content": []},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "caller": {}}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}, "x": 1}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "is_error": True}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}, {"type": "text", "text": "y"}]},
        {"role": "system", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]},
    ],
)  # fmt: skip
def test_what_is_more_than_bare_goes_the_long_way(message):
    assert openai.read_at_once(message) is None
    assert anthropic.read_at_once(message) is None
