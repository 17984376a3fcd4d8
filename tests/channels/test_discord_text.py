"""Pure functions of the Discord bot: mentions as names, and Markdown as Discord renders it."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recollect.channels.bot import split
from recollect.channels.bot.chat_markdown import find_code_blocks
from recollect.channels.discord.bot import DiscordOptions, invitation_url, welcome_lines
from recollect.channels.discord.interactions import HELP_TEXT, is_private
from recollect.channels.discord.messages import resolve_mentions
from recollect.channels.discord.outlet import ExpiredOutlet, to_discord_markdown

NAMES = {"@1": "@Ada", "&7": "@admins", "#10": "#general"}
OUTLET = ExpiredOutlet()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("<@900> hello", "hello"),
        ("<@!900>, hello", "hello"),
        ("hello <@900>", "hello"),
        ("  <@900> <@900>  hi <@900> ", "hi"),
        ("what does <@900> do?", "what does <@900> do?"),
        ("ask <@1> or <@!1> in <#10>, <@&7>", "ask @Ada or @Ada in #general, @admins"),
        ("nobody <@5> knows", "nobody <@5> knows"),
        ("<a:party:123> <:smile:456>", ":party: :smile:"),
        ("<@900>", ""),
        ("", ""),
        ("<@900> /clear", "/clear"),
        ("`<@1`> < @1>", "`<@1`> < @1>"),
    ],
)
def test_mentions_become_names_and_the_mention_of_the_bot_is_removed(content, text):
    assert resolve_mentions(content, NAMES, 900) == text


@given(st.text(alphabet="<@!&#>90 1ax\n:,", max_size=60))
@settings(max_examples=150, deadline=None)
def test_any_text_can_be_read(content):
    text = resolve_mentions(content, NAMES, 900)
    assert resolve_mentions(text, NAMES, 900) is not None
    assert text == text.strip()


def test_headings_rules_and_images():
    text = '# One\n#### Four **bold** ####\n\n---\n\n***\n\n![a cat](https://x.org/c.png "t") ![](https://x.org/d)'
    line = "\u2500" * 12
    assert to_discord_markdown(text) == (
        f"# One\n**Four bold**\n\n{line}\n\n{line}\n\n[a cat](https://x.org/c.png) [image](https://x.org/d)"
    )


def test_code_blocks_are_unchanged():
    code = "```md\n#### no\n---\n![x](https://x.org)\n| a | b |\n|---|---|\n| 1 | 2 |\n```"
    assert to_discord_markdown(f"{code}\n#### yes\n{code}") == f"{code}\n**yes**\n{code}"
    assert to_discord_markdown("```\n#### open") == "```\n#### open"


PIECES = st.sampled_from(
    ["word ", "\n", "\n\n", "```", "```py\n", "| a | b |\n", "|---|---|\n", "#### x\n", "---\n", "\U0001f600" * 9, "x" * 99, "|", "`"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=120).map("".join))
@example("| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 300)
@example("| " + "wide " * 20 + "| b |\n|---|---|\n" + "| 1 | 2 |\n" * 150)
@example("\U0001f600" * 5000)
@example("|\n|---|---|\n")
@settings(max_examples=80, deadline=None)
def test_rendered_pieces_fit_the_length_limit(text):
    for piece in split(text, 2000, OUTLET.measure):
        rendered = to_discord_markdown(piece)
        assert len(rendered.encode("utf-16-le")) // 2 <= 2000
        assert rendered.strip()


def test_a_code_block_that_fits_is_not_split():
    code = "```py\n" + "x = 1\n" * 200 + "```"
    pieces = split("word " * 300 + "\n\n" + code + "\n\nAnd after it.", 2000, OUTLET.measure)
    assert len(pieces) == 2
    assert pieces[1].startswith(code)
    assert all(block.end is not None for piece in pieces for block in find_code_blocks(piece))


@pytest.mark.parametrize("text", ["|" * 12_000, "![a" * 5_000, "| a " * 4_000, "```\n" * 3_000, "- " * 8_000])
def test_unterminated_markup_is_split(text):
    assert all(OUTLET.measure(piece) <= 2000 for piece in split(text, 2000, OUTLET.measure))


def test_the_invitation_requests_only_the_needed_permissions():
    link = invitation_url(42)
    assert "client_id=42" in link
    assert "permissions=309237713920" in link
    assert "applications.commands" in link


def test_the_welcome_describes_the_allow_list():
    class Me:
        name, id = "bot", 42

    assert "Its allow list is empty" in welcome_lines(Me, DiscordOptions().access)[0]


def test_commands_that_change_a_conversation_are_public():
    assert is_private("history", "")
    assert is_private("resume", "")
    assert not is_private("resume", "an id")
    assert not is_private("clear", "")
    assert "/thread" in HELP_TEXT
