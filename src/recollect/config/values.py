"""The types that a setting can have: reading what was written, and showing it without its secrets."""

from __future__ import annotations

import os
from typing import Any

from recollect.config import expanded
from recollect.config.settings import MOST, Kind, Setting
from recollect.errors import InvalidValue

_DIGITS = 19
_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_SECONDS = {
    "s": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3600, "hour": 3600, "d": 86_400, "day": 86_400,
    "w": 604_800, "week": 604_800, "month": 2_592_000, "y": 31_536_000, "year": 31_536_000,
}  # fmt: skip
_BYTES = {
    "": 1, "b": 1, "k": 10**3, "kb": 10**3, "m": 10**6, "mb": 10**6, "g": 10**9, "gb": 10**9, "t": 10**12, "tb": 10**12,
    "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}  # fmt: skip
_WANTED: dict[Kind, str] = {
    "path": "a path in quotes",
    "url": 'a URL in quotes, such as "sqlite:////data/recollect.db"',
    "text": "a text in quotes",
    "address": "a URL in quotes",
    "secret": "a text in quotes",
    "number": "a whole number from 1 on",
    "flag": "true or false",
    "duration": 'a duration in quotes, such as "90d" or "12h"',
    "texts": 'a list of texts, such as ["one", "two"]',
    "secrets": 'a table of names and texts, such as { alice = "...", bob = "..." }',
}


def typed(setting: Setting, raw: Any, folder: str) -> Any:
    """Read what was written as the type of its setting, or say what is wanted."""
    wanted = _WANTED[setting.kind]
    if setting.kind == "flag":
        return _need(isinstance(raw, bool), raw, wanted)
    if setting.kind == "number":
        if setting.most != MOST:
            wanted = f"a number from 1 to {setting.most}"
        return _need(isinstance(raw, int) and not isinstance(raw, bool) and 1 <= raw <= setting.most, raw, wanted)
    if setting.kind == "texts":
        good = isinstance(raw, list) and all(isinstance(item, str) and item for item in raw)
        return tuple(_need(good, raw, wanted))
    if setting.kind == "secrets":
        good = isinstance(raw, dict) and bool(raw) and all(isinstance(item, str) and item for item in raw.values())
        return dict(_need(good, raw, wanted))
    _need(isinstance(raw, str) and bool(raw.strip()) and "\0" not in raw, raw, wanted)
    if setting.choices:
        return _need(raw in setting.choices, raw, "one of " + ", ".join(f'"{choice}"' for choice in setting.choices))
    if setting.kind == "duration":
        return duration(raw)
    if setting.kind == "path":
        return _path(raw, folder)
    return _url(raw, folder) if setting.kind == "url" else raw


def _need(good: bool, raw: Any, wanted: str) -> Any:
    if not good:
        raise ValueError(wanted)
    return raw


def _path(raw: str, folder: str) -> str:
    """Read a path; a relative one is relative to the folder of the file that names it."""
    if is_url(raw):
        raise ValueError("a path, and this is a URL: call it url")
    try:
        return raw if raw == ":memory:" else os.path.join(folder, expanded(raw))
    except InvalidValue as error:
        raise ValueError("a path, and the home folder that this one begins with is not known") from error


def _url(raw: str, folder: str) -> str:
    """Read a URL; sqlite:///file is relative to the folder of the file that names it."""
    if not is_url(raw):
        raise ValueError("a URL, and this is a path: call it path")
    rest = raw.removeprefix("sqlite:///")
    if not folder or rest == raw or not rest or rest.startswith(("/", "~", ":memory:")):
        return raw
    from urllib.parse import quote  # noqa: PLC0415  4 ms that a plain path need not pay

    return f"sqlite:///{quote(os.path.join(folder, ''))}{rest}"


def is_url(text: str) -> bool:
    """Whether a database is named by a URL, and not by a path."""
    return "://" in text or text.startswith("sqlite:")


def spoken(setting: Setting, text: str) -> Any:
    """Read a value from a variable or an option, where everything is text."""
    raw: Any = text
    if setting.kind in ("path", "url"):
        return text  # relative to where the command runs; the engine reads it
    if setting.kind == "number":
        raw = int(text) if text.strip().isdecimal() and len(text) < _DIGITS else text
    elif setting.kind == "flag":
        raw = text.lower() in _YES if text.lower() in (*_YES, *_NO) else text
    elif setting.kind == "texts":
        raw = [item.strip() for item in text.split(",") if item.strip()]
    elif setting.kind == "secrets":
        pairs = [item.partition("=") for item in text.split(",") if item.strip()]
        raw = {name.strip(): token.strip() for name, _, token in pairs}
    try:
        return typed(setting, raw, "")
    except ValueError as error:
        raise ValueError(str(error).replace(" in quotes", "").replace('"', "")) from error


def duration(text: str) -> int:
    """Read a duration such as "90d", "1h30m" or "2 weeks", in milliseconds; none at all is no duration."""
    total = stretch(text)
    if total is None:
        raise ValueError(_WANTED["duration"])
    if not 1 <= total <= MOST:
        raise ValueError('a duration of at least a millisecond, such as "90d"')
    return int(total)


def stretch(text: str) -> float | None:
    """Read a stretch of time, which may be 0, in milliseconds; None where the text is something else."""
    pairs = _pairs(text)
    if not pairs or any(unit not in _SECONDS for _, unit in pairs):
        return None
    return sum(number * _SECONDS[unit] * 1000 for number, unit in pairs)


def size(text: str) -> int:
    """Read a size such as "2GB", "500 MiB" or "4096", in bytes."""
    pairs = _pairs(text)
    if len(pairs) != 1 or pairs[0][1] not in _BYTES or not 1 <= pairs[0][0] * _BYTES[pairs[0][1]] <= MOST:
        raise ValueError('a size such as "2GB" or "500MiB"')
    return int(pairs[0][0] * _BYTES[pairs[0][1]])


def _pairs(text: str) -> list[tuple[float, str]]:
    """Split "1h30m" into numbers and units; a text that is anything else gives none."""
    import re  # noqa: PLC0415

    plain = text.strip().lower().replace("_", "")
    pattern = re.compile(r"(\d{1,16}(?:\.\d{1,9})?)\s*([a-z]*)[\s,]*", re.ASCII)
    if pattern.sub("", plain):
        return []
    return [(float(number), _singular(unit)) for number, unit in pattern.findall(plain)]


def _singular(unit: str) -> str:
    return unit[:-1] if unit.endswith("s") and len(unit) > 3 else unit  # noqa: PLR2004  "days", and not "ms"


def told(setting: Setting, raw: Any) -> str:
    """Repeat what was written, for an error; a secret is not repeated."""
    return "something else" if setting.kind in ("secret", "secrets", "url", "address") else repr(raw)


def masked(setting: Setting, written: Any) -> Any:
    """Give a value as it may be shown: a secret is hidden, and so is a password in a URL."""
    if setting.kind == "secrets" and written is not None:
        return "********"
    if not isinstance(written, str):
        return list(written) if isinstance(written, tuple) else written
    if setting.kind == "secret":
        return "********"
    return without_password(written) if is_url(written) else written


def without_password(url: str) -> str:
    """Hide the password in a URL, and keys in its query."""
    import re  # noqa: PLC0415

    scheme, mark, rest = url.partition("://")
    user, at, place = rest.rpartition("@")
    name, colon, _ = user.partition(":")
    shown = f"{name}{':********' if colon else ''}{at}{place}"
    return scheme + mark + re.sub(r"(?i)([?&][^=&]*(?:pass|key|token|secret)[^=&]*=)[^&]*", r"\1********", shown)
