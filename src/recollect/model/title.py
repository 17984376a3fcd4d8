"""A title as lists put it in order: without case and accents, so that Éclair stands between ebb and edge."""

from __future__ import annotations

PLAIN = str.maketrans({"ø": "o", "đ": "d", "ð": "d", "ł": "l", "æ": "ae", "œ": "oe", "þ": "th"})
"""Letters that Unicode does not take apart into a letter and a mark. Stored titles are in order by it: it stays."""


def folded(title: str) -> str:
    """Fold a title: small letters, no marks, ß as ss. Blanks at its ends do not count."""
    if title.isascii():
        return title.strip().lower()
    import unicodedata  # noqa: PLC0415  only where a title has letters beyond ASCII

    # Twice: some letters have a small one only after they were taken apart, and that may come apart again.
    apart = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", title).casefold())
    return "".join(letter for letter in apart if not unicodedata.combining(letter)).translate(PLAIN).strip()
