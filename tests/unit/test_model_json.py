"""Values are encoded as JSON exactly, or refused."""

from __future__ import annotations

import collections
import dataclasses
import enum
import json as standard
import types
from typing import Any, Literal, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.errors import InvalidValue
from recollect.model import json
from recollect.model.message import Part, TextPart
from recollect_conformance import examples

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(exclude_categories=())), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


def nested(levels: int, kind: type = list) -> Any:
    value: Any = "end"
    for _ in range(levels):
        value = [value] if kind is list else {"a": value}
    return value


def is_same(one: Any, other: Any) -> bool:
    """Return whether values are equal and of the same types: True is not 1, 1 is not 1.0."""
    return repr(one) == repr(other)


@given(PLAIN)
def test_plain_data_round_trips(value):
    assert is_same(json.to_json_data(value), value)
    text = json.encode(value)
    assert is_same(json.decode(text), value)
    assert is_same(json.decode(text.encode()), value)


SURROGATES = st.text(st.sampled_from('a\ud83d\ude00\udbff\udc00\U0001f600\uffff\u00e9"\\'))


@given(
    st.recursive(SURROGATES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SURROGATES, inner, max_size=3))
)
def test_surrogates_round_trip_in_pairs_or_alone(value):
    text = json.encode(json.to_json_data(value))
    assert is_same(json.decode(text), value)
    assert is_same(json.decode(text.encode()), value)
    assert standard.loads(json.encode_standard(value)) == standard.loads(standard.dumps(value))


@given(PLAIN)
def test_the_text_is_standard_json_and_utf_8(value):
    text = json.encode(value)
    assert text.startswith("  ") or is_same(standard.loads(text), value)
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
def test_edge_cases_of_json_round_trip(value):
    assert is_same(json.decode(json.encode(json.to_json_data(value))), value)


@pytest.mark.parametrize(
    "value",
    [10**4299, 10**5000, {"a": -(10**9999)}],
    ids=lambda value: type(value).__name__,
)
def test_a_huge_number_round_trips_or_is_refused(value):
    """By default, Python does not parse an integer of more than 4,300 digits."""
    if value == 10**4299:
        assert json.decode(json.encode(json.to_json_data(value))) == value
        return
    for call in (json.to_json_data, json.encode, json.encode_standard):
        with pytest.raises(InvalidValue, match="must be JSON data, got an integer of more than 4,300 digits"):
            call(value)


@pytest.mark.parametrize("value", ["\ud800", {"a": ["\udc00", 2**99]}], ids=repr)
def test_text_that_msgspec_cannot_decode_begins_with_a_space(value):
    text = json.encode(value)
    assert text[0] == " "
    assert text.isascii()


@pytest.mark.parametrize("value", ["plain", 1, [2**63 - 1], {"ä": "\U0001f600"}], ids=repr)
def test_other_text_does_not_begin_with_a_space(value):
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
def test_parts_round_trip_with_their_types(part):
    assert json.decode_as(tuple[Part, ...], json.encode((part,))) == (part,)
    assert json.decode_as(tuple[Part, ...], json.encode((part,)).encode()) == (part,)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), float("-inf"), [float("nan")], {"a": {"b": float("inf")}}], ids=repr
)
def test_numbers_that_json_cannot_represent_are_refused(value):
    with pytest.raises(InvalidValue, match=r"must be JSON data, got -?(nan|inf)"):
        json.to_json_data(value)


@pytest.mark.parametrize("key", [1, None, True, 1.5, (1,), b"a"], ids=repr)
def test_keys_that_are_not_strings_are_refused(key):
    with pytest.raises(InvalidValue, match=r"^value\['ok'\]\[0\] must be JSON data, got the key "):
        json.to_json_data({"ok": [{key: 1}]})


@pytest.mark.parametrize(
    "value",
    [b"x", bytearray(b"x"), {1}, frozenset(), object(), 1j, range(3), iter([]), len, int],
    ids=lambda value: type(value).__name__,
)
def test_objects_that_json_cannot_represent_are_refused(value):
    with pytest.raises(InvalidValue, match=r"^value\[0\] must be JSON data, got "):
        json.to_json_data([value])


@pytest.mark.parametrize("kind", [list, dict])
def test_nesting_up_to_the_maximum_depth_is_accepted(kind):
    value = json.to_json_data(nested(json.MAX_DEPTH, kind))
    assert json.decode(json.encode(value)) == value


@pytest.mark.parametrize("kind", [list, dict])
@pytest.mark.parametrize("extra_levels", [1, 2, 700, 50_000])
def test_nesting_beyond_the_maximum_depth_is_refused(kind, extra_levels):
    value = nested(json.MAX_DEPTH + extra_levels, kind)
    with pytest.raises(InvalidValue, match=f"{json.MAX_DEPTH} levels"):
        json.to_json_data(value)


@pytest.mark.parametrize("leaf", ["\ud800", 2**80], ids=repr)
def test_deep_values_that_msgspec_cannot_decode_round_trip(leaf):
    value = nested(json.MAX_DEPTH - 1)
    innermost = value
    while isinstance(innermost[0], list):
        innermost = innermost[0]
    innermost[0] = leaf
    assert json.decode(json.encode(json.to_json_data(value))) == value


def test_a_circular_value_is_refused():
    circular: list[Any] = []
    circular.append(circular)
    with pytest.raises(InvalidValue):
        json.to_json_data(circular)


class Word(str):
    __slots__ = ()


class Whole(int):
    pass


class Fraction(float):
    pass


class Color(enum.StrEnum):
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
        (Color.RED, "red"),
        (Level.HIGH, 3),
        ((1, (2,)), [1, [2]]),
        (collections.OrderedDict(a=1), {"a": 1}),
        (collections.defaultdict(list, a=[1]), {"a": [1]}),
        (Point(1, 2), [1, 2]),
        (Plain("a", {"b": 1}), {"name": "a", "inner": {"b": 1}}),
        (Record("a", Record("b", None)), {"name": "a", "inner": {"name": "b", "inner": None}}),
        (types.MappingProxyType({"a": (1,)}), {"a": [1]}),
        (collections.ChainMap({"a": 1}, {"b": Level.HIGH}), {"b": 3, "a": 1}),
        ({Color.RED: [Word("a")], "x": 1}, {"red": ["a"], "x": 1}),
        ({"k": [Record("a", (1,))]}, {"k": [{"name": "a", "inner": [1]}]}),
    ],
    ids=repr,
)
def test_values_of_similar_types_become_plain(value, plain):
    result = json.to_json_data(value)
    assert result == plain
    assert is_same(result, plain)
    assert type(result) is type(plain)


def test_a_subclass_of_float_must_be_finite():
    with pytest.raises(InvalidValue):
        json.to_json_data(Fraction("nan"))


class Keyed(str):
    """A string that equals only itself."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return 1


def test_keys_that_are_the_same_text_are_refused():
    with pytest.raises(InvalidValue, match="two keys are the same text"):
        json.to_json_data({Keyed("a"): 1, Keyed("a"): 2})


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (b"x", ""),
        ({"a": [1, {"b c": {1}}]}, r"\['a'\]\[1\]\['b c'\]"),
        (({}, (1, object())), r"\[1\]\[1\]"),
        ({"a": Record("x", [b"y"])}, r"\['a'\]"),
        ({"k" * 300: b"x"}, r"\['k{198}\.\.\."),
        ({"a": [1, 10**5000]}, r"\['a'\]\[1\]"),
    ],
)
def test_the_error_names_the_argument_and_the_path(value, path):
    with pytest.raises(InvalidValue, match=rf"^metadata{path} must be JSON data, got .*\. JSON data is str, "):
        json.to_json_data(value, "metadata")


@pytest.mark.parametrize("kind", [list, dict])
def test_an_error_below_the_maximum_depth_has_a_short_path(kind):
    value = nested(json.MAX_DEPTH - 1, kind)
    innermost: Any = value
    while not isinstance(innermost[0 if kind is list else "a"], str):
        innermost = innermost[0 if kind is list else "a"]
    innermost[0 if kind is list else "a"] = b"x"
    with pytest.raises(InvalidValue) as excinfo:
        json.to_json_data(value)
    assert len(str(excinfo.value)) < 600


class Raising:
    def model_dump(self, **options: Any) -> dict[str, Any]:
        raise OSError("no")


def test_an_object_whose_code_raises_is_refused():
    with pytest.raises(
        InvalidValue, match=r"^output\['a'\] must be JSON data, got an object of type Raising that raised"
    ):
        json.to_json_data({"a": Raising()}, "output")


@given(PLAIN)
def test_a_copy_is_equal_and_shares_nothing(value):
    copy = json.copy_json_data(value)
    assert is_same(copy, value)
    containers = [value, copy]
    identities: set[int] = set()
    while containers:
        item = containers.pop()
        if isinstance(item, (list, dict)):
            assert id(item) not in identities
            identities.add(id(item))
            containers += item.values() if isinstance(item, dict) else item


class SdkObject:
    """An object like those of a provider's SDK, which are pydantic models."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields
        self.options: dict[str, Any] = {}

    def model_dump(self, **options: Any) -> dict[str, Any]:
        self.options = options
        return self.fields


def test_an_sdk_object_becomes_the_dict_of_its_fields():
    inner = SdkObject(type="text", text="hi")
    outer = SdkObject(role="assistant", content=[inner])
    assert json.to_json_data([outer]) == [{"role": "assistant", "content": [{"type": "text", "text": "hi"}]}]
    assert outer.options == {"mode": "json", "by_alias": True, "exclude_unset": True, "warnings": False}


class TestModelsWithDefaults:
    """Objects that a program builds, as with Mistral's and LangChain's SDKs: their type is a default that the program does not set."""

    def test_only_the_defaults_that_name_the_type_are_kept(self):
        pydantic = pytest.importorskip("pydantic")

        class Chunk(pydantic.BaseModel):
            text: str
            type: Literal["text"] = "text"
            note: str | None = None

        class Call(pydantic.BaseModel):
            type: str | None = None
            arguments: dict[str, Any] = pydantic.Field(default_factory=dict, alias="args")

        class UserMessage(pydantic.BaseModel):
            content: list[Chunk] | str
            role: Literal["user"] = "user"
            calls: list[Call] = pydantic.Field(default=[], alias="toolCalls")
            prefix: bool = False

        assert json.to_json_data(UserMessage(content="hi")) == {"role": "user", "content": "hi"}
        message = UserMessage(
            content=[Chunk(text="hi"), Chunk(text="ho", note=None)], toolCalls=[Call(args={"type": 1}), Call()]
        )
        assert json.to_json_data([message]) == [
            {
                "role": "user",
                "content": [{"type": "text", "text": "hi"}, {"type": "text", "text": "ho", "note": None}],
                "toolCalls": [{"args": {"type": 1}}, {}],
            }
        ]

    def test_objects_of_real_sdks_gain_no_fields(self):
        anthropic, openai = pytest.importorskip("anthropic.types"), pytest.importorskip("openai.types.chat")
        for kind, received in (
            (anthropic.Message, examples.ANTHROPIC_RESPONSE),
            (openai.ChatCompletion, examples.OPENAI_RESPONSE),
            (openai.ChatCompletionMessage, {"content": "no role was sent"}),
        ):
            assert json.to_json_data(kind.construct(**received)) == received


def test_an_sdk_object_is_validated():
    with pytest.raises(InvalidValue):
        json.to_json_data(SdkObject(x=float("nan")))


def test_an_object_of_a_real_sdk_keeps_unknown_fields():
    types = pytest.importorskip("anthropic.types")
    block = types.TextBlock.model_validate({"type": "text", "text": "hi", "citations": None, "brand_new": {"x": 1}})
    assert json.to_json_data(block) == {"type": "text", "text": "hi", "citations": None, "brand_new": {"x": 1}}


def test_the_argument_is_not_changed():
    value = {"a": (1, Word("x"))}
    json.to_json_data(value)
    assert type(value["a"]) is tuple
    assert type(value["a"][1]) is Word


@pytest.mark.parametrize("text", ["", "{", "[1,", "nope", "[" * 100_000])
def test_text_that_is_not_json_is_a_value_error(text):
    with pytest.raises((ValueError, RecursionError)):
        json.decode(text)


def test_json_of_another_program_with_huge_numbers_is_read():
    assert json.decode(f'{{"a": {2**90}}}') == {"a": 2**90}
    assert json.decode('"\\ud800"') == "\ud800"
