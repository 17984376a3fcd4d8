"""The sort key and the file name of a session title."""

from __future__ import annotations

TRANSLITERATION = str.maketrans({"ø": "o", "đ": "d", "ð": "d", "ł": "l", "æ": "ae", "œ": "oe", "þ": "th"})
"""Letters that Unicode does not decompose into a letter and a mark. Stored sort keys depend on it: do not change it."""

# Characters and bytes of a name; leaves space for a suffix below the 255 bytes of most file systems.
_MAX_FILE_NAME, _MAX_FILE_NAME_BYTES = 80, 200
_WINDOWS_DEVICES = frozenset(
    ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$", "CLOCK$"]
    + [kind + number for kind in ("COM", "LPT") for number in "0123456789\u00b9\u00b2\u00b3"]
)
_MAX_SORT_KEY = 500  # characters; an index key of PostgreSQL is limited to about 2,700 bytes


def title_sort_key(title: str) -> str:
    """Return a normalized title: lower case, without diacritics, ß as ss, stripped, at most 500 characters."""
    if title.isascii():
        return title.strip().lower()[:_MAX_SORT_KEY]
    import unicodedata  # noqa: PLC0415  only needed for non-ASCII titles

    # Twice: some letters have a lower case only after decomposition, and that may decompose again.
    letters = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", title).casefold())
    return (
        "".join(letter for letter in letters if not unicodedata.combining(letter))
        .translate(TRANSLITERATION)
        .strip()[:_MAX_SORT_KEY]
    )


def file_name(title: str) -> str:
    """Return a file name for a title: its letters and digits; "" if it has none."""
    name = "".join(c if c.isalnum() or c in "-_ " else " " for c in title)
    short_name = " ".join(name.split())[:_MAX_FILE_NAME].encode()[:_MAX_FILE_NAME_BYTES].decode("utf-8", "ignore")
    return safe_file_name(short_name.strip())


def safe_file_name(name: str) -> str:
    """Return a file name, prefixed with `_` if a program could misread it.

    That is an option (`-rf`), a hidden file or a folder (`.bashrc`, `..`), or a device on Windows (`CON`, `nul.txt`).
    """
    stem = name.partition(".")[0].rstrip().upper()
    return f"_{name}" if name.startswith(("-", ".")) or stem in _WINDOWS_DEVICES else name
