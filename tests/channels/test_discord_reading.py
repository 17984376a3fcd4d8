"""Pure pieces of the bot on Discord: words instead of numbers, and Markdown as Discord shows it."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recollect.channels.bot import split
from recollect.channels.bot.splitting import blocks
from recollect.channels.discord.bot import Options, invitation, welcome
from recollect.channels.discord.layout import laid_out
from recollect.channels.discord.outlet import GoneOutlet
from recollect.channels.discord.reading import readable
from recollect.channels.discord.slash import HELP, private

NAMES = {"@1": "@Ada", "&7": "@admins", "#10": "#general"}
OUTLET = GoneOutlet()


@pytest.mark.parametrize(
    ("content", "words"),
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
def test_mentions_are_names_and_the_call_of_the_bot_is_left_out(content, words):
    assert readable(content, NAMES, 900) == words


@given(st.text(alphabet="<@!&#>90 1ax\n:,", max_size=60))
@settings(max_examples=150, deadline=None)
def test_anything_can_be_read(content):
    words = readable(content, NAMES, 900)
    assert readable(words, NAMES, 900) is not None
    assert words == words.strip()


def test_headings_rules_and_pictures():
    text = '# One\n#### Four **bold** ####\n\n---\n\n***\n\n![a cat](https://x.org/c.png "t") ![](https://x.org/d)'
    line = "\u2500" * 12
    assert laid_out(text) == (
        f"# One\n**Four bold**\n\n{line}\n\n{line}\n\n[a cat](https://x.org/c.png) [picture](https://x.org/d)"
    )


def test_code_stays_as_it_is():
    code = "```md\n#### no\n---\n![x](https://x.org)\n| a | b |\n|---|---|\n| 1 | 2 |\n```"
    assert laid_out(f"{code}\n#### yes\n{code}") == f"{code}\n**yes**\n{code}"
    assert laid_out("```\n#### open") == "```\n#### open"


PIECES = st.sampled_from(
    ["word ", "\n", "\n\n", "```", "```py\n", "| a | b |\n", "|---|---|\n", "#### x\n", "---\n", "\U0001f600" * 9, "x" * 99, "|", "`"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=120).map("".join))
@example("| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 300)
@example("| " + "wide " * 20 + "| b |\n|---|---|\n" + "| 1 | 2 |\n" * 150)
@example("\U0001f600" * 5000)
@example("|\n|---|---|\n")
@settings(max_examples=80, deadline=None)
def test_no_piece_is_longer_than_discord_takes_after_it_was_laid_out(text):
    for piece in split(text, 2000, OUTLET.measure):
        shown = laid_out(piece)
        assert len(shown.encode("utf-16-le")) // 2 <= 2000
        assert shown.strip()


def test_a_block_of_code_stays_whole_where_it_fits():
    code = "```py\n" + "x = 1\n" * 200 + "```"
    pieces = split("word " * 300 + "\n\n" + code + "\n\nAnd after it.", 2000, OUTLET.measure)
    assert len(pieces) == 2
    assert pieces[1].startswith(code)
    assert all(block.end is not None for piece in pieces for block in blocks(piece))


@pytest.mark.parametrize("text", ["|" * 12_000, "![a" * 5_000, "| a " * 4_000, "```\n" * 3_000, "- " * 8_000])
def test_what_looks_like_markup_without_end_is_cut_too(text):
    assert all(OUTLET.measure(piece) <= 2000 for piece in split(text, 2000, OUTLET.measure))


def test_the_invitation_asks_for_what_is_needed_and_no_more():
    link = invitation(42)
    assert "client_id=42" in link
    assert "permissions=309237713920" in link
    assert "applications.commands" in link


def test_the_welcome_says_who_may_talk():
    class Me:
        name, id = "bot", 42

    assert "Nobody may talk to it yet" in welcome(Me, Options().access)[0]


def test_what_changes_a_conversation_is_for_all_to_see():
    assert private("history", "")
    assert private("resume", "")
    assert not private("resume", "an id")
    assert not private("clear", "")
    assert "/thread" in HELP
