"""How the functions that parse untrusted text scale: the ratio of the time per character at 4n and at n characters.

    python benchmarks/untrusted_text.py [--characters 50000] [--only redaction]

The texts repeat patterns for which a parser looks ahead: delimiters without an end, nested quotes and lists, links,
tables, entities, keys. For a function with linear time the ratio is about 1, with quadratic time about 4. For each
function, the benchmark prints the worst ratio with its text, and the slowest text at 4n. It measures the CPU time of
this thread, so that other processes affect the values little.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator

from recollect.agent import titles
from recollect.channels.bot import chat_markdown
from recollect.channels.discord import outlet
from recollect.channels.telegram import entities
from recollect.channels.terminal import sanitize
from recollect.channels.terminal.screen import MarkdownBlocks
from recollect.export import markdown_html, safe_markup
from recollect.export.redaction import Redactor
from recollect.model import title
from recollect.model.message import AttachmentPart
from recollect.server.page import markdown
from recollect.server.page.markdown import highlight_code
from recollect.storage.search import analysis, hits, query

TextFunction = Callable[[str], object]

UNITS = (
    "\\(", "\\)", "\\[", "\\( \\(", "\\(a\\]", "$", "$$", "$a ", "$\\", "$$\n", "\\[\n", "`", "``a ", "a`b``",
    "`a\n", "*", "**", "**a", "***a ", "*a_", "*a **b ", "_", "_a_ ", "__a", "~", "~~", "~~a ", "[", "]",
    "[a](", "[a](b", "[[]", "](", "![", "![a](", "[a]: b\n\n", "[a][b] ", "[a](<b", '[a](b "', "<", "<a",
    "<!--", "<http://a", "http://a ", "http://", "http://a.,", "http://.,", "&", "&amp;", "&#", "|", "|a",
    "a|b\n-|-\n", "|-", "\\|", "> ", ">>>>>>>>\n", "> - ", "- ", "- a\n", "  - a\n", "1. a\n", "- - - a\n", "#",
    "# a\n", "# a #", "===\n", "---\n", "a\n-\n", "* * *", "\\", "a", "a ", "a\n", "\n", "  \n", "```\n",
    "~~~\n", "```a\n~~~\n", "    a\n", "\t", "(", "((", '"', "'", '"a ', "'a\n", "\xe9", "\xdf", "\U0001f600",
    "\u0301", "-----BEGIN PRIVATE KEY-----", "-----BEGIN ", "password=", "password: ", "password='", "a_",
    "a.b-", "a.", "-", "://", "a://b:", "token=", "&key=", "?key=a", "eyJ", "eyJaaaaaaaa.", "sk-", "sk-a",
    "sk-ant-", "0:", "12345678:", "Bearer ", "Bearer a", "authorization: ", "api_key", "NOT ", "a* ", "data:;",
    "OR ", "(a ", "role:", "-a ", "hooks.slack.com", "/*", "'''", "{", "${", "{{", "<%", "//", "<a ", "@",
    "a@b.c ",
)  # fmt: skip
"""The patterns that the texts repeat."""

CODE = (
    "python",
    "javascript",
    "html",
    "json",
    "bash",
    "c",
    "css",
    "yaml",
    "sql",
    "markdown",
    "rust",
    "go",
    "java",
    "php",
)


def _split(text: str) -> object:
    return chat_markdown.split(text, 4096, chat_markdown.utf16_length)


def _stream_blocks(text: str) -> object:
    blocks = MarkdownBlocks()
    return [blocks.feed(text[start : start + 200]) for start in range(0, len(text), 200)]


def _excerpt(text: str) -> object:
    needles = [hits.Needle((word,), prefix=True, suffix=True) for word in ("a", "b", "key")]
    return hits.make_snippet(text, needles)


FUNCTIONS: dict[str, TextFunction] = {
    "server.page.markdown": markdown.render_blocks,
    "export.markdown_to_html": markdown_html.markdown_to_html,
    "export.sanitize_markdown": safe_markup.sanitize_markdown,
    "export.redaction": lambda text: Redactor().text(text),
    "export.redaction (value)": lambda text: Redactor().value({"password": text, "data": text, "type": "base64"}),
    "export.render_attachment": lambda text: safe_markup.render_attachment(AttachmentPart(data=text, url=text)),
    "search.query": lambda text: query.parse_query(text, 0),
    "search.analysis": lambda text: (analysis.fold(text), analysis.token_spans(text)),
    "search.snippet": _excerpt,
    "model.title": lambda text: (title.title_sort_key(text), title.file_name(text)),
    "agent.titles": titles.shorten_title,
    "bot.split": _split,
    "bot.render_tables": chat_markdown.render_tables,
    "telegram.entities": lambda text: entities.render_entities(text[:4096]),
    "telegram.entities (all)": entities.render_entities,
    "discord.markdown": outlet.to_discord_markdown,
    "terminal.sanitize": sanitize.clean,
    "terminal.markdown": _stream_blocks,
    **{f"code ({name})": lambda text, name=name: highlight_code(text, name) for name in CODE},
}


def texts(length: int, seed: int = 1) -> Iterator[tuple[str, str]]:
    """Yield hostile texts of a length, each with a name: single units, pairs, nests, and random mixtures."""
    for unit in UNITS:
        yield repr(unit), (unit * (length // len(unit) + 1))[:length]
        yield f"a {unit!r}", "a " + (unit * (length // len(unit) + 1))[: length - 2]
    for opening, closing in (
        ("![", "](b)"),
        ("[", "](b)"),
        ("(", ")"),
        ("*", "*"),
        ("**a", "**"),
        ("`", "`"),
        ("<", ">"),
        ("> ", ""),
    ):
        half = length // (len(opening) + len(closing) + 1)
        yield f"nested {opening!r}", opening * half + "a" * half + closing * half
    generator = random.Random(seed)
    for number in range(40):
        units = generator.sample(UNITS, generator.randint(2, 4))
        pattern = "".join(generator.choices(units, k=generator.randint(3, 12)))
        yield f"mixed {number} {pattern[:30]!r}", (pattern * (length // len(pattern) + 1))[:length]


def seconds(check: TextFunction, text: str, runs: int = 1) -> float:
    """Return the CPU time of a function for a text in seconds, the minimum of some runs."""
    minimum = float("inf")
    for _ in range(runs):
        started = time.thread_time()
        check(text)
        minimum = min(minimum, time.thread_time() - started)
    return minimum


def ratio(check: TextFunction, short: str, long: str, runs: int = 1) -> float:
    """Return the time per character of the long text relative to the short one. Times under 2 ms count as 2 ms."""
    return max(seconds(check, long, runs), 0.002) / max(seconds(check, short, runs), 0.002) / (len(long) / len(short))


def main() -> None:
    """Measure the functions and print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--characters", type=int, default=12_500, help="n; the long texts have four times as many")
    parser.add_argument("--only", default="", help="measure only functions whose name contains this text")
    options = parser.parse_args()
    print(f"{'function':26} {'ratio':>6}  {'text with that ratio':34} {'slowest':>9}  text with that time")
    for name, function in FUNCTIONS.items():
        if options.only not in name:
            continue
        worst_growth, growth_text, slowest, slowest_text = 0.0, "", 0.0, ""
        for (label, short), (_, long) in zip(texts(options.characters), texts(4 * options.characters), strict=True):
            long_time = seconds(function, long)
            growth = max(long_time, 0.002) / max(seconds(function, short), 0.002) / (len(long) / len(short))
            if growth > 1.5:
                growth = min(growth, ratio(function, short, long, runs=3))
            worst_growth, growth_text = max((worst_growth, growth_text), (growth, label))
            slowest, slowest_text = max((slowest, slowest_text), (long_time, label))
        print(
            f"{name:26} {worst_growth:6.2f}  {growth_text[:34]:34} {slowest * 1000:6.0f} ms  {slowest_text[:40]}",
            flush=True,
        )


if __name__ == "__main__":
    main()
