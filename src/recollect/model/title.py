"""What is made of a title: how lists put it in order (Éclair stands between ebb and edge), and the name of a file."""

from __future__ import annotations

PLAIN = str.maketrans({"ø": "o", "đ": "d", "ð": "d", "ł": "l", "æ": "ae", "œ": "oe", "þ": "th"})
"""Letters that Unicode does not take apart into a letter and a mark. Stored titles are in order by it: it stays."""

_LONGEST_NAME = 80
_DEVICES = frozenset(
    ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$", "CLOCK$"]
    + [kind + number for kind in ("COM", "LPT") for number in "0123456789\u00b9\u00b2\u00b3"]
)
_LONGEST = 500  # an index of PostgreSQL's has no room for a long text


def folded(title: str) -> str:
    """Fold a title: small letters, no marks, ß as ss. Blanks at its ends do not count, nor does what is far from it."""
    if title.isascii():
        return title.strip().lower()[:_LONGEST]
    import unicodedata  # noqa: PLC0415  only where a title has letters beyond ASCII

    # Twice: some letters have a small one only after they were taken apart, and that may come apart again.
    apart = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", title).casefold())
    return "".join(letter for letter in apart if not unicodedata.combining(letter)).translate(PLAIN).strip()[:_LONGEST]


def file_name(title: str) -> str:
    """Give what a file is called that is about something with this title: its letters and digits; "" if it has none."""
    name = "".join(c if c.isalnum() or c in "-_ " else " " for c in title)
    return safe_file_name(" ".join(name.split())[:_LONGEST_NAME].strip())


def safe_file_name(name: str) -> str:
    """Return a file name with `_` before it if a program could take it for something else.

    That is an option (`-rf`), a hidden file or a folder (`.bashrc`, `..`), or a device on Windows (`CON`, `nul.txt`).
    """
    stem = name.partition(".")[0].rstrip().upper()
    return f"_{name}" if name.startswith(("-", ".")) or stem in _DEVICES else name
