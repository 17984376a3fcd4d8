"""How the functions that read untrusted text grow with it: the ratio of time per character at 4n and at n.

    python benchmarks/hostile.py [--characters 50000] [--only redaction]

A text repeats what a parser has to look ahead for: delimiters that are never closed, nested quotes and lists, links,
tables, entities, keys. For a function that takes linear time the ratio is about 1, for a quadratic one about 4. Printed
are, for each function, the worst ratio with the text that caused it, and the slowest text at 4n. CPU time of this
thread is measured, so other programs change the figures little.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator

from recollect.agent import titles
from recollect.channels.bot import splitting, tables
from recollect.channels.discord import layout
from recollect.channels.telegram import markup
from recollect.channels.terminal import safe
from recollect.channels.terminal.markdown import Blocks
from recollect.export import attachment, prose, speech
from recollect.export.redaction import Redactor
from recollect.model import title
from recollect.model.part import AttachmentPart
from recollect.ops.search import query, snippet, words
from recollect.server.page import markdown
from recollect.server.page.code import highlighted

Check = Callable[[str], object]

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
"""What the texts repeat."""

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
    return splitting.split(text, 4096, splitting.utf16)


def _streamed(text: str) -> object:
    blocks = Blocks()
    return [blocks.feed(text[at : at + 200]) for at in range(0, len(text), 200)]


def _excerpt(text: str) -> object:
    needles = [snippet.Needle((word,), prefix=True, suffix=True) for word in ("a", "b", "key")]
    return snippet.excerpt(text, needles)


FUNCTIONS: dict[str, Check] = {
    "server.page.markdown": markdown.blocks,
    "export.prose": prose.rendered,
    "export.speech": speech.told,
    "export.redaction": lambda text: Redactor().text(text),
    "export.redaction (value)": lambda text: Redactor().value({"password": text, "data": text, "type": "base64"}),
    "export.attachment": lambda text: attachment.shown(AttachmentPart(data=text, url=text)),
    "search.query": lambda text: query.parse(text, 0),
    "search.words": lambda text: (words.fold(text), words.spans(text)),
    "search.snippet": _excerpt,
    "model.title": lambda text: (title.folded(text), title.file_name(text)),
    "agent.titles": titles.shortened,
    "bot.splitting": _split,
    "bot.tables": tables.laid_out,
    "telegram.markup": lambda text: markup.rendered(text[:4096]),
    "telegram.markup (whole)": markup.rendered,
    "discord.layout": layout.laid_out,
    "terminal.safe": safe.clean,
    "terminal.markdown": _streamed,
    **{f"code ({name})": lambda text, name=name: highlighted(text, name) for name in CODE},
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
    chance = random.Random(seed)
    for number in range(40):
        some = chance.sample(UNITS, chance.randint(2, 4))
        pattern = "".join(chance.choices(some, k=chance.randint(3, 12)))
        yield f"mixed {number} {pattern[:30]!r}", (pattern * (length // len(pattern) + 1))[:length]


def seconds(check: Check, text: str, runs: int = 1) -> float:
    """Return the CPU time that a function takes for a text, the least of some runs."""
    least = float("inf")
    for _ in range(runs):
        begun = time.thread_time()
        check(text)
        least = min(least, time.thread_time() - begun)
    return least


def ratio(check: Check, short: str, long: str, runs: int = 1) -> float:
    """Return how many times as long a character of the long text takes. What takes under 2 ms is not told apart."""
    return max(seconds(check, long, runs), 0.002) / max(seconds(check, short, runs), 0.002) / (len(long) / len(short))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--characters", type=int, default=12_500, help="n; the long texts have four times as many")
    parser.add_argument("--only", default="", help="a part of the names of the functions to measure")
    options = parser.parse_args()
    print(f"{'function':26} {'ratio':>6}  {'worst growth':34} {'slowest':>9}  text")
    for name, check in FUNCTIONS.items():
        if options.only not in name:
            continue
        worst, cause, slowest, slow = 0.0, "", 0.0, ""
        for (label, short), (_, long) in zip(texts(options.characters), texts(4 * options.characters), strict=True):
            took = seconds(check, long)
            grown = max(took, 0.002) / max(seconds(check, short), 0.002) / (len(long) / len(short))
            if grown > 1.5:
                grown = min(grown, ratio(check, short, long, runs=3))
            worst, cause = max((worst, cause), (grown, label))
            slowest, slow = max((slowest, slow), (took, label))
        print(f"{name:26} {worst:6.2f}  {cause[:34]:34} {slowest * 1000:6.0f} ms  {slow[:40]}", flush=True)


if __name__ == "__main__":
    main()
