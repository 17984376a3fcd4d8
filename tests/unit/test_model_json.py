"""JSON that is exact, or refused."""

from __future__ import annotations

import collections
import dataclasses
import enum
import json as standard
from typing import Any, Literal, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.errors import InvalidValue
from recollect.model import json
from recollect.model.part import Part, TextPart
from recollect.testing import talk

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=())),
    lambda some: st.lists(some, max_size=4) | st.dictionaries(st.text(st.characters(exclude_categories=())), some, max_size=4),
    max_leaves=12,
)  # fmt: skip


def nested(levels: int, kind: type = list) -> Any:
    value: Any = "end"
    for _ in range(levels):
        value = [value] if kind is list else {"a": value}
    return value


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same types: True is not 1, 1 is not 1.0."""
    return repr(one) == repr(other)


@given(PLAIN)
def test_plain_data_comes_back_equal(value):
    assert same(json.exact(value), value)
    text = json.encode(value)
    assert same(json.decode(text), value)
    assert same(json.decode(text.encode()), value)


SURROGATES = st.text(st.sampled_from('a\ud83d\ude00\udbff\udc00\U0001f600\uffff\u00e9"\\'))


@given(
    st.recursive(SURROGATES, lambda some: st.lists(some, max_size=3) | st.dictionaries(SURROGATES, some, max_size=3))
)
def test_surrogates_come_back_as_they_were_side_by_side_or_not(value):
    text = json.encode(json.exact(value))
    assert same(json.decode(text), value)
    assert same(json.decode(text.encode()), value)
    assert standard.loads(json.standard(value)) == standard.loads(standard.dumps(value))


@given(PLAIN)
def test_the_text_is_json_that_sqlite_and_others_can_store(value):
    text = json.encode(value)
    assert text.startswith("  ") or same(standard.loads(text), value)
    standard.loads(text)
    text.encode("utf-8")


@pytest.mark.parametrize(
    "value",
    [
        "\ud800", "\ud83d\ude00", ["a\ud83d", "\ude00"], {"\ud83d\ude00": "\ud83d\uffff\ude00"}, {"\udfff": 1}, ["a\ud83d", "b"], 2**63, 2**64, -(2**63) - 1, 10**400, {"n": [2**200]},
        2**63 - 1, -(2**63), 2**64 - 1, -0.0, 1e308, 5e-324, "\x00\x1f\x7f\u2028", "", {}, [], {"": {}},
    ],
    ids=repr,
)  # fmt: skip
def test_the_corners_of_json(value):
    assert same(json.decode(json.encode(json.exact(value))), value)


@pytest.mark.parametrize(
    "value",
    [10**4299, 10**5000, {"a": -(10**9999)}],
    ids=lambda value: type(value).__name__,
)
def test_what_is_not_carried_exactly_is_refused(value):
    """Python reads no number of 5,000 digits."""
    try:
        text = json.encode(json.exact(value))
    except InvalidValue:
        return
    assert json.decode(text) == value


@pytest.mark.parametrize("value", ["\ud800", {"a": ["\udc00", 2**99]}], ids=repr)
def test_what_msgspec_can_not_carry_begins_with_a_space(value):
    text = json.encode(value)
    assert text[0] == " "
    assert text.isascii()


@pytest.mark.parametrize("value", ["plain", 1, [2**63 - 1], {"ä": "\U0001f600"}], ids=repr)
def test_everything_else_does_not(value):
    assert json.encode(value)[0] != " "


@pytest.mark.parametrize(
    "part",
    [
        TextPart(text="\ud800"),
        TextPart(text="\ud83d\ude00", metadata={"\ud83d\ude00": 1}),
        TextPart(text="a", metadata={"n": 2**70}),
        TextPart(text="b"),
    ],
)
def test_parts_come_back_typed(part):
    assert json.decode_as(tuple[Part, ...], json.encode((part,))) == (part,)
    assert json.decode_as(tuple[Part, ...], json.encode((part,)).encode()) == (part,)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), float("-inf"), [float("nan")], {"a": {"b": float("inf")}}], ids=repr
)
def test_numbers_that_json_has_not_are_refused(value):
    with pytest.raises(InvalidValue, match="JSON has no"):
        json.exact(value)


@pytest.mark.parametrize("key", [1, None, True, 1.5, (1,), b"a"], ids=repr)
def test_keys_that_are_not_text_are_refused(key):
    with pytest.raises(InvalidValue, match="key"):
        json.exact({"ok": [{key: 1}]})


@pytest.mark.parametrize(
    "value",
    [b"x", bytearray(b"x"), {1}, frozenset(), object(), 1j, range(3), iter([]), len, int],
    ids=lambda value: type(value).__name__,
)
def test_objects_that_json_has_not_are_refused(value):
    with pytest.raises(InvalidValue, match="can not be stored as JSON"):
        json.exact([value])


@pytest.mark.parametrize("kind", [list, dict])
def test_nesting_is_taken_up_to_the_stated_depth(kind):
    value = json.exact(nested(json.DEPTH, kind))
    assert json.decode(json.encode(value)) == value


@pytest.mark.parametrize("kind", [list, dict])
@pytest.mark.parametrize("beyond", [1, 2, 700, 50_000])
def test_nesting_beyond_it_is_refused(kind, beyond):
    value = nested(json.DEPTH + beyond, kind)
    with pytest.raises(InvalidValue, match=f"{json.DEPTH} levels"):
        json.exact(value)


@pytest.mark.parametrize("odd", ["\ud800", 2**80], ids=repr)
def test_what_is_deep_and_odd_goes_both_ways(odd):
    value = nested(json.DEPTH - 1)
    holder = value
    while isinstance(holder[0], list):
        holder = holder[0]
    holder[0] = odd
    assert json.decode(json.encode(json.exact(value))) == value


def test_a_circle_is_refused():
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(InvalidValue):
        json.exact(circle)


class Word(str):
    __slots__ = ()


class Whole(int):
    pass


class Fraction(float):
    pass


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Point(NamedTuple):
    x: int
    y: int


class Plain(msgspec.Struct):
    name: str
    inner: dict[str, Any]


@dataclasses.dataclass
class Record:
    name: str
    inner: Any


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Word("a"), "a"),
        (Whole(3), 3),
        (Fraction(1.5), 1.5),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        ((1, (2,)), [1, [2]]),
        (collections.OrderedDict(a=1), {"a": 1}),
        (collections.defaultdict(list, a=[1]), {"a": [1]}),
        (Point(1, 2), [1, 2]),
        (Plain("a", {"b": 1}), {"name": "a", "inner": {"b": 1}}),
        (Record("a", Record("b", None)), {"name": "a", "inner": {"name": "b", "inner": None}}),
        ({"k": [Record("a", (1,))]}, {"k": [{"name": "a", "inner": [1]}]}),
    ],
    ids=repr,
)
def test_relatives_of_plain_types_become_plain(value, plain):
    found = json.exact(value)
    assert found == plain
    assert same(found, plain)
    assert type(found) is type(plain)


def test_a_wide_float_of_another_type_is_checked_too():
    with pytest.raises(InvalidValue):
        json.exact(Fraction("nan"))


class SdkObject:
    """Stands for an object of a provider's SDK, which is a pydantic model."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields
        self.asked: dict[str, Any] = {}

    def model_dump(self, **options: Any) -> dict[str, Any]:
        self.asked = options
        return self.fields


def test_an_sdk_object_becomes_the_dict_it_was_made_from():
    inner = SdkObject(type="text", text="hi")
    outer = SdkObject(role="assistant", content=[inner])
    assert json.exact([outer]) == [{"role": "assistant", "content": [{"type": "text", "text": "hi"}]}]
    assert outer.asked == {"mode": "json", "by_alias": True, "exclude_unset": True, "warnings": False}


class TestModelsWithDefaults:
    """Objects that a program builds, as Mistral's and LangChain's: what they are is a default that nobody set."""

    def test_they_keep_what_they_are_and_nothing_else(self):
        pydantic = pytest.importorskip("pydantic")

        class Chunk(pydantic.BaseModel):
            text: str
            type: Literal["text"] = "text"
            note: str | None = None

        class Call(pydantic.BaseModel):
            type: str | None = None
            arguments: dict[str, Any] = pydantic.Field(default_factory=dict, alias="args")

        class Said(pydantic.BaseModel):
            content: list[Chunk] | str
            role: Literal["user"] = "user"
            calls: list[Call] = pydantic.Field(default=[], alias="toolCalls")
            prefix: bool = False

        assert json.exact(Said(content="hi")) == {"role": "user", "content": "hi"}
        built = Said(
            content=[Chunk(text="hi"), Chunk(text="ho", note=None)], toolCalls=[Call(args={"type": 1}), Call()]
        )
        assert json.exact([built]) == [
            {
                "role": "user",
                "content": [{"type": "text", "text": "hi"}, {"type": "text", "text": "ho", "note": None}],
                "toolCalls": [{"args": {"type": 1}}, {}],
            }
        ]

    def test_real_objects_that_were_received_gain_nothing(self):
        anthropic, openai = pytest.importorskip("anthropic.types"), pytest.importorskip("openai.types.chat")
        for kind, received in (
            (anthropic.Message, talk.ANTHROPIC_RESPONSE),
            (openai.ChatCompletion, talk.OPENAI_RESPONSE),
            (openai.ChatCompletionMessage, {"content": "no role was sent"}),
        ):
            assert json.exact(kind.construct(**received)) == received


def test_an_sdk_object_is_checked_like_everything_else():
    with pytest.raises(InvalidValue):
        json.exact(SdkObject(x=float("nan")))


def test_a_real_sdk_object_keeps_what_its_type_does_not_know():
    types = pytest.importorskip("anthropic.types")
    block = types.TextBlock.model_validate({"type": "text", "text": "hi", "citations": None, "brand_new": {"x": 1}})
    assert json.exact(block) == {"type": "text", "text": "hi", "citations": None, "brand_new": {"x": 1}}


def test_what_was_given_is_not_changed():
    given = {"a": (1, Word("x"))}
    json.exact(given)
    assert type(given["a"]) is tuple
    assert type(given["a"][1]) is Word


@pytest.mark.parametrize("text", ["", "{", "[1,", "nope", "[" * 100_000])
def test_text_that_is_not_json_is_a_value_error(text):
    with pytest.raises((ValueError, RecursionError)):
        json.decode(text)


def test_a_text_from_elsewhere_with_huge_numbers_is_read():
    assert json.decode(f'{{"a": {2**90}}}') == {"a": 2**90}
    assert json.decode('"\\ud800"') == "\ud800"
