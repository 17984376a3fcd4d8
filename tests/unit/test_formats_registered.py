"""A format that another distribution registers as an entry point."""

from __future__ import annotations

import importlib
import pathlib
import sys

import pytest

import recollect
from recollect import formats
from recollect.errors import UnknownFormat
from recollect.formats import boundaries, registry
from recollect.formats.detection import FORMATS

DISTRIBUTION = pathlib.Path(__file__).parent / "other_format"
SCRIPT = formats.RegisteredFormat("script")
LINES = [
    {"speaker": "narrator", "line": "Night."},
    {"speaker": "user", "line": "Who's there?", "mood": {"afraid": True}},
    {"speaker": "assistant", "line": "Nay, answer me."},
]


@pytest.fixture(autouse=True)
def _distribution():
    """Install the distribution: put the folder with its modules and its metadata on the path."""
    sys.path.append(str(DISTRIBUTION))
    importlib.invalidate_caches()
    registry._registered_names.cache_clear()
    yield
    sys.path.remove(str(DISTRIBUTION))
    uninstall()


def uninstall():
    registry._registered_names.cache_clear()
    for name in ("script", "unfinished", "renamed"):
        registry._loaded_modules.pop(name, None)


@pytest.fixture
def session():
    with recollect.open(":memory:") as store:
        yield store.session("a")


def test_messages_round_trip_and_are_converted(session):
    session.append(LINES, format=SCRIPT)
    session.append({"role": "user", "content": "Long live the king!"})
    assert session.messages()[1].format == "script"
    assert session.history(SCRIPT, repair=False)[:3] == LINES
    assert session.history(SCRIPT) == [*LINES, {"speaker": "user", "line": "Long live the king!"}]
    assert session.history("anthropic")[0] == {"role": "user", "content": "Who's there?"}
    assert session.history("openai")[0] == {"role": "system", "content": "Night."}
    assert formats.response(session.message("1.2")) is None
    assert session.store.search("king")


def test_repair_follows_the_rules_of_the_format(session):
    session.append([LINES[2], LINES[1]], format=SCRIPT)
    history = session.history(SCRIPT)
    assert [report.kind for report in history.repairs] == ["first_role"]
    assert [line["speaker"] for line in history] == ["user", "assistant", "user"]


def test_parse_and_render(session):
    drafts = formats.parse(LINES, SCRIPT)
    assert [draft.format for draft in drafts] == ["script"] * 3
    assert formats.render(drafts, SCRIPT) == LINES
    session.append([draft.replace(metadata={"n": 1}) for draft in drafts])
    assert session.history(SCRIPT, repair=False) == LINES


@pytest.mark.parametrize("name", FORMATS)
def test_built_in_formats_have_boundaries(name):
    """Without them, history(last=...) reads the whole session."""
    assert registry.boundary_test(name) is not boundaries.no_message


@pytest.mark.parametrize("has_boundaries", [True, False])
def test_the_last_messages(session, monkeypatch, has_boundaries):
    if not has_boundaries:  # then the whole session is read
        module = registry.load_module("script")
        monkeypatch.delattr(module, "is_boundary")
        assert not registry.boundary_test("script")(None, session)  # pyright: ignore[reportArgumentType]
    lines = [{"speaker": "user", "line": str(number)} for number in range(100)]
    session.append(lines, format=SCRIPT)
    for last in (0, 1, 50, 99, 100, 101):
        assert session.history(SCRIPT, last=last) == lines[100 - min(last, 100) :]


def test_a_remainder_that_contradicts_the_common_fields_is_not_written(session):
    session.append(
        recollect.Draft(
            role="user", parts=(recollect.TextPart(text="seen"),), format="script", native={"fields": "odd"}
        )
    )
    assert session.history(SCRIPT) == [{"speaker": "user", "line": "seen"}]


def test_messages_of_a_format_that_is_no_longer_installed_are_readable(session):
    session.append(LINES, format=SCRIPT)
    sys.path.remove(str(DISTRIBUTION))
    uninstall()
    try:
        assert session.history("openai", repair=False)[1] == {"role": "user", "content": "Who's there?"}
        assert session.history("openai")[1] == {"role": "user", "content": "Who's there?"}
        assert formats.response(session.message("1.2")) is None
        assert session.messages()[1].native == {"fields": {"mood": {"afraid": True}}}
        with pytest.raises(UnknownFormat, match="Use one of: anthropic"):
            session.history(SCRIPT)
        with pytest.raises(UnknownFormat):
            session.append(LINES, format=SCRIPT)
    finally:
        sys.path.append(str(DISTRIBUTION))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("absent", "'absent' is registered as 'script_format_absent', but importing it raised ModuleNotFoundError"),
        ("unfinished", "but has no read, write, response"),
        ("renamed", "but its NAME is 'other'"),
        ("scripts", "Use one of: .*recollect, absent, renamed, script, unfinished"),
    ],
)
def test_a_format_that_cannot_be_used_is_refused(session, name, text):
    for call in (
        lambda: session.append(LINES, format=name),
        lambda: session.history(name),
        lambda: session.history(name, last=1),
        lambda: formats.parse(LINES, name),
        lambda: formats.render([], name),
    ):
        with pytest.raises(UnknownFormat, match=text):
            call()
    assert session.messages() == []


def test_a_built_in_format_cannot_be_replaced(session):
    session.append({"role": "tool", "tool_call_id": "c", "content": "x"}, format="openai")
    assert session.history("openai", repair=False) == [{"role": "tool", "tool_call_id": "c", "content": "x"}]


class Name(str):
    __slots__ = ()


def test_the_name_may_be_of_a_subclass_of_str(session):
    session.append(LINES, format=Name("script"))
    assert session.history(Name("script"), repair=False) == LINES
    assert session.history(Name("openai"), last=1) == [{"role": "assistant", "content": "Nay, answer me."}]
