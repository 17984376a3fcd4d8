"""Redaction of secrets in exports: `[redacted:github-token]` replaces a GitHub token.

It works on values, never on serialized JSON, so that no structure breaks and no escape hides a secret. A secret is
detected by its form (a provider's key), by its context (a header, a URL, a PEM block) or by the name next to it
(password=..., "api_key": ...). The same secret always gets the same mark. Detection is best effort: a secret that
looks like an ordinary word is not detected.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from recollect.model import blob, json
from recollect.model.message import Part
from recollect.model.session import TEXT_FIELDS, SessionInfo
from recollect.storage.messages import MessageParts
from recollect.storage.row_stream import (
    FullCallRow,
    FullCompactionRow,
    FullMessageRow,
    FullRecordRow,
    FullSnapshotRow,
    FullVersionRow,
    TurnRow,
)

_EDGE = r"(?<![A-Za-z0-9_])"
_END = r"(?![A-Za-z0-9_\-])"


class _SecretRule(NamedTuple):
    name: str
    pattern: re.Pattern[str]
    needs: tuple[str, ...]
    """Lower-case words. Every match contains one of them, so other texts need no regular expression."""


def _rule(name: str, pattern: str, *needs: str, flags: int = 0) -> _SecretRule:
    return _SecretRule(name, re.compile(pattern, flags), needs)


def _token(name: str, body: str, *needs: str) -> _SecretRule:
    return _rule(name, f"{_EDGE}(?P<secret>{body}){_END}", *needs)


# The order matters: the more specific rules come first.
_RULES = (
    _rule(
        "private-key",
        r"(?P<secret>-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:(?!-----BEGIN )[\s\S])*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z))",
        "private key",
    ),
    _token("anthropic-key", r"sk-ant-[A-Za-z0-9_\-]{16,}", "sk-ant-"),
    _token("openrouter-key", r"sk-or-(?:v1-)?[A-Za-z0-9]{32,}", "sk-or-"),
    _token("stripe-key", r"[srp]k_(?:live|test)_[A-Za-z0-9]{10,}", "_live_", "_test_"),
    _token("stripe-key", r"whsec_[A-Za-z0-9+/=]{24,}", "whsec_"),
    _token("openai-key", r"sk-(?:proj|svcacct|admin)-[A-Za-z0-9_\-]{20,}|sk-(?=[A-Za-z]*\d)[A-Za-z0-9]{20,}", "sk-"),
    _token("aws-key-id", r"(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}", "akia", "asia", "abia", "acca"),
    _token("github-token", r"gh[pousr]_[A-Za-z0-9]{30,255}|github_pat_[A-Za-z0-9_]{22,255}", "gh", "github_pat_"),
    _token("gitlab-token", r"gl(?:pat|ptt|dt|rt|soat|ft|imt|agent|cbt)-[A-Za-z0-9_\-]{20,}", "gl"),
    _token("slack-token", r"xox[abeoprs]-[A-Za-z0-9\-]{10,}|xapp-\d-[A-Za-z0-9\-]{10,}", "xox", "xapp-"),
    _rule(
        "slack-webhook",
        r"(?P<secret>https://hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9+/_\-]{20,})",
        "hooks.slack.com",
    ),
    _rule(
        "discord-webhook",
        r"(?P<secret>https://(?:\w+\.)?discord(?:app)?\.com/api/(?:v\d+/)?webhooks/\d{17,20}/[A-Za-z0-9_\-]{60,})",
        "/webhooks/",
    ),
    _token("google-key", r"AIza[A-Za-z0-9_\-]{35}", "aiza"),
    _token("google-oauth", r"GOCSPX-[A-Za-z0-9_\-]{20,}|ya29\.[A-Za-z0-9_\-]{20,}", "gocspx-", "ya29."),
    _token("huggingface-token", r"hf_[A-Za-z]{30,40}|hf_[A-Za-z0-9]{34,40}", "hf_"),
    _token("npm-token", r"npm_[A-Za-z0-9]{36,}", "npm_"),
    _token("pypi-token", r"pypi-[A-Za-z0-9_\-]{50,}", "pypi-"),
    _token("digitalocean-token", r"do[opr]_v1_[a-f0-9]{64}", "_v1_"),
    _token("sendgrid-key", r"SG\.[A-Za-z0-9_\-]{16,32}\.[A-Za-z0-9_\-]{32,64}", "sg."),
    _token("groq-key", r"gsk_[A-Za-z0-9]{40,}", "gsk_"),
    _token("xai-key", r"xai-[A-Za-z0-9]{60,}", "xai-"),
    _token("replicate-key", r"r8_[A-Za-z0-9]{37,}", "r8_"),
    _token("perplexity-key", r"pplx-[A-Za-z0-9]{40,}", "pplx-"),
    _token("telegram-token", r"\d{8,10}:[A-Za-z0-9_\-]{35}", ":"),
    _token("jwt", r"eyJ[A-Za-z0-9_\-]{8,}\.eyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]*", "eyj"),
    _token(
        "discord-token",
        r"mfa\.[A-Za-z0-9_\-]{60,}|[MNO][A-Za-z0-9_\-]{23,27}\.[A-Za-z0-9_\-]{6}\.[A-Za-z0-9_\-]{27,45}",
        ".",
    ),
    _rule(
        "authorization",
        r"\b(?:authorization|proxy-authorization)[\"']?\s*[:=]\s*[\"']?(?:bearer|basic|token|digest|apikey)\s+"
        r"(?P<secret>[^\s\"',;]{6,})",
        "authorization",
        flags=re.IGNORECASE,
    ),
    _rule("authorization", r"\b(?:Bearer|BEARER)\s+(?P<secret>(?=\S*\d)[A-Za-z0-9_\-.~+/]{20,}=*)", "bearer"),
    _rule("url-password", r"\b[a-z][a-z0-9+.\-]{1,30}://[^\s/:@?#\"'<>]{0,256}:(?P<secret>[^\s/@?#\"'<>]{1,256})@", "://",
          flags=re.IGNORECASE),
    _rule(
        "url-token",
        r"[?&](?:access_token|api_?key|auth_?token|token|secret|client_secret|password|passwd|sig|signature|x-amz-signature|"
        r"x-amz-security-token|key)=(?P<secret>[^\s&#\"'<>]{8,})",
        "?", "&",
        flags=re.IGNORECASE,
    ),
)  # fmt: skip

_SECRET_NAMES = (
    r"pass(?:word|wd|phrase|code)|passwd|pwd|"  # noqa: S105  a pattern, not a password
    r"secret(?:[_\-]?(?:access[_\-]?)?(?:key|token))?|"
    r"(?:api|access|auth|app|master|private|signing|encryption|account|license|ssh)[_\-]?key(?:[_\-]?id)?|"
    r"(?:api|access|client|app|consumer|shared|signing|webhook|jwt)[_\-]?secret|"
    r"(?:api|access|auth|refresh|session|id|bearer|bot|deploy|registry|personal|csrf|xsrf)?[_\-]?token|"
    r"credentials?|connection[_\-]?string|cookie"
)
_AMBIGUOUS_NAME = re.compile(r"(?:^|[_.\-])(?:token|secret|credentials?|cookie|key[_\-]?id)$", re.IGNORECASE)
"""Names that are also ordinary words: their value must look like a secret."""

_HINTS = ("pass", "pwd", "secret", "key", "token", "credential", "cookie", "string")
"""Every name of a secret contains one of these."""

# A name before `=` or `:` in code, in an env file or in YAML: API_KEY=..., db.password: "...".
_ASSIGNMENT = re.compile(
    rf"""(?<![A-Za-z0-9])(?P<name>(?:[A-Za-z0-9]{{1,32}}[_.\-]){{0,6}}(?:{_SECRET_NAMES}))
    (?P<gap>["']?[ \t]{{0,8}}(?:=>|:=|=(?!=)|:(?!:))[ \t]{{0,8}})
    (?:(?P<quote>["'`])(?P<quoted>(?:(?!(?P=quote))[^\\\n]|\\.){{4,4096}})(?P=quote)
    |(?P<bare>[^\s"'`,;(){{}}\[\]<>]{{6,4096}}))""",
    re.IGNORECASE | re.VERBOSE,
)
_SECRET_FIELD = re.compile(rf"(?:^|[_.\-\s])(?:{_SECRET_NAMES})$", re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_MARK = re.compile(r"\[redacted:[a-z\-]+\]")

# Placeholders, types and expressions in the position of a value.
_PLACEHOLDER = re.compile(
    r"[$%{<\[(&!].*|\W*|x+|.{0,40}\(.*|(?:os|process|env|config|settings|self|this|args|params|request|options)[.\[].*|"
    r"(?:your|my|the|some|enter|insert|example|changeme|change|replace|todo|test|dummy|placeholder|redacted)\b.*|"
    r"(?:none|null|nil|true|false|undefined|string|str|bytes|bool|int|integer|number|object|text|optional|required|"
    r"default|missing|invalid|expired|empty|unknown|yes|no|on|off|enabled|disabled|hidden|masked)\W*",
    re.IGNORECASE | re.DOTALL,
)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z_]*(?:\.[A-Za-z_]+)*\W?")
_BASE64 = re.compile(r"[A-Za-z0-9+/]{16,}={0,2}")
_URL = re.compile(r"data:[^,]{0,200};base64,", re.IGNORECASE)
_MEDIA_TYPE_KEYS = ("mime_type", "media_type", "mimeType", "mediaType", "mimetype")
_LONG_PAYLOAD = 2_048  # characters. Longer base64 is a file: no known key is as long.
_MIN_LENGTH = 6  # characters. A shorter secret cannot be distinguished from a word.
_MIN_AMBIGUOUS_LENGTH = 16  # characters. Ordinary words after an ambiguous name are shorter.


class Redactor:
    """Masks secrets in text and in JSON data. `counts` is the number of masked secrets by kind."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def text(self, text: str) -> str:
        """Mask the secrets in a text."""
        if len(text) < _MIN_LENGTH:
            return text
        lowercase = text.lower()
        for rule in _RULES:
            if any(word in lowercase for word in rule.needs):
                text = rule.pattern.sub(lambda match, rule=rule: self._mask_match(match, rule.name), text)
        return _ASSIGNMENT.sub(self._mask_assignment, text) if any(word in lowercase for word in _HINTS) else text

    def value(self, value: Any, name: str = "") -> Any:
        """Mask the secrets in JSON data. The value of a key that names a secret is masked regardless of its form."""
        if isinstance(value, str):
            return self._mask_named(value, name) if name and _names_secret(name) else self._mask_string(value)
        if isinstance(value, dict):
            return self._mask_object(value)
        if isinstance(value, list | tuple):
            return [self.value(item, name) for item in value]
        return value

    def _mask_object(self, value: dict[str, Any]) -> dict[str, Any]:
        typed = any(isinstance(value.get(key), str) for key in _MEDIA_TYPE_KEYS) or value.get("type") == "base64"
        result: dict[str, Any] = {}
        for key, item in value.items():
            masked_key = self.text(key)
            while masked_key in result:
                masked_key += "'"
            if typed and key == "data" and isinstance(item, str):
                result[masked_key] = self._mask_payload(item)
            else:
                result[masked_key] = self.value(item, key)
        return result

    def _mask_string(self, text: str) -> str:
        if text[:5].lower() == "data:" and (match := _URL.match(text)):
            return text[: match.end()] + self._mask_payload(text[match.end() :])
        if len(text) >= _LONG_PAYLOAD and _BASE64.fullmatch(text):
            return self._mask_payload(text)
        return self.text(text)

    def _mask_payload(self, text: str) -> str:
        """Mask the secrets in a base64 payload if it is text. Other files are returned unchanged."""
        try:
            content = base64.b64decode(text, validate=True).decode()
        except ValueError:  # not base64, or not text
            content = ""
        result = content if "\0" in content else self.text(content)
        if result != content:
            return base64.b64encode(result.encode()).decode()
        # Some keys consist of letters and digits only, like base64. Anything longer than every key is a file.
        return text if len(text) >= _LONG_PAYLOAD and _BASE64.fullmatch(text) else self.text(text)

    def _mask_named(self, text: str, name: str) -> str:
        """Mask the value of a field whose name is that of a secret."""
        result = self._mask_string(text)
        if result != text or _PLACEHOLDER.fullmatch(text):
            return result
        looks_secret = len(text) >= _MIN_AMBIGUOUS_LENGTH or any(letter.isdigit() for letter in text)
        if (_AMBIGUOUS_NAME.search(name) and not looks_secret) or " " in text.strip():
            return result
        return self._mark("secret")

    def _mask_match(self, match: re.Match[str], name: str) -> str:
        secret = match["secret"]
        if _MARK.search(secret) or secret[:1] in "$<{" or not secret.strip("*xX."):
            return match[0]
        start, end = match.span("secret")
        return match[0][: start - match.start()] + self._mark(name) + match[0][end - match.start() :]

    def _mask_assignment(self, match: re.Match[str]) -> str:
        group = "quoted" if match["quoted"] is not None else "bare"
        if not _is_secret(match[group], match["name"], match["gap"], quoted=group == "quoted"):
            return match[0]
        start, end = match.span(group)
        return match[0][: start - match.start()] + self._mark("secret") + match[0][end - match.start() :]

    def _mark(self, name: str) -> str:
        self.counts[name] = self.counts.get(name, 0) + 1
        return f"[redacted:{name}]"


def _names_secret(name: str) -> bool:
    """Return whether a field name is that of a secret: apiKey, DB_PASSWORD, client-secret; not max_tokens."""
    return len(name) <= 64 and bool(_SECRET_FIELD.search(_CAMEL.sub("_", name)))  # noqa: PLR2004


def _is_secret(value: str, name: str, gap: str, *, quoted: bool) -> bool:
    """Return whether a value assigned to the name of a secret is one, and not code, a placeholder or a sentence."""
    if _MARK.search(value) or _PLACEHOLDER.fullmatch(value):
        return False
    if not quoted and value.startswith(("http://", "https://", "/", "./", "../", "~/")):
        return False
    has_digit = any(letter.isdigit() for letter in value)
    if _AMBIGUOUS_NAME.search(name):
        return has_digit and len(value) >= _MIN_LENGTH + 2 and " " not in value
    if quoted:
        return " " not in value or has_digit
    # PASSWORD=letmein is a line of an env file, `password = letters` is code, `password: letters` is a sentence.
    return has_digit or not _IDENTIFIER.fullmatch(value) or gap.strip("\"'") == "="


_UNMASKED_FIELDS = ("status", "color", "channel", "channel_id")
"""Fields of a session that hold words of the program, or part of the session id."""


def redact_session(value: SessionInfo, redactor: Redactor | None) -> SessionInfo:
    """Mask the fields of a session. Its id is not masked, because other records refer to it."""
    if redactor is None:
        return value
    names = [name for name in (*TEXT_FIELDS, "metadata") if name not in _UNMASKED_FIELDS]
    fields: dict[str, Any] = {name: redactor.value(getattr(value, name)) for name in names}
    fields["labels"] = tuple(sorted(set(map(redactor.value, value.labels))))
    return msgspec.structs.replace(value, **fields)


R = TypeVar("R", FullMessageRow, FullVersionRow)


def redact_message(row: R, payloads: Mapping[str, bytes], redactor: Redactor) -> tuple[R, dict[str, bytes]]:
    """Mask a message, or a version, and its payloads. Return the row, and the payloads that it refers to then."""
    data = json.decode(row.parts)
    if row.blobs is not None:
        data = blob.attach_payloads(data, payloads)
    parts: tuple[Part, ...] = msgspec.convert(redactor.value(data), MessageParts)
    without_payloads, new_payloads = blob.detach_payloads(parts)
    new_row = row._replace(
        parts=json.encode(without_payloads),
        blobs=None if new_payloads is None else json.encode(sorted(new_payloads)),
        error=_redact_json(row.error, redactor),
        metadata=_redact_json(row.metadata, redactor),
        native=_redact_json(row.native, redactor),
    )
    return new_row, new_payloads or {}


def _redact_json(text: str | None, redactor: Redactor) -> str | None:
    return None if text is None else json.encode(redactor.value(json.decode(text)))


def redact_turn(row: TurnRow, redactor: Redactor | None) -> TurnRow:
    """Mask the error of a turn."""
    return row if redactor is None else row._replace(error=_redact_json(row.error, redactor))


def redact_call(row: FullCallRow, redactor: Redactor | None) -> FullCallRow:
    """Mask the error message of a tool call."""
    return row if redactor is None else row._replace(error_message=redactor.value(row.error_message))


def redact_compaction(row: FullCompactionRow, redactor: Redactor | None) -> FullCompactionRow:
    """Mask the summary of a compaction."""
    return row if redactor is None else row._replace(summary=redactor.value(row.summary))


def redact_snapshot(row: FullSnapshotRow, redactor: Redactor | None) -> FullSnapshotRow:
    """Mask the content of a snapshot."""
    return row if redactor is None else row._replace(content=_redact_json(row.content, redactor) or "")


def redact_record(row: FullRecordRow, names: set[tuple[str, bytes]], redactor: Redactor) -> FullRecordRow:
    """Mask the key and the value of a keyed record. Bytes are masked if they are text.

    `names` are the kinds and keys of the masked records of the session: if masking makes two keys equal, the second one
    gets an apostrophe.
    """
    key = row.key.decode()
    masked_key = redactor.text(key)
    if masked_key != key:
        while (row.kind, masked_key.encode()) in names:
            masked_key += "'"
        names.add((row.kind, masked_key.encode()))
    value = None if row.value is None else json.encode(redactor.value(json.decode(row.value), key))
    data = None if row.data is None else _redact_bytes(row.data, key, redactor)
    return row._replace(key=masked_key.encode(), value=value, data=data)


def _redact_bytes(data: bytes, name: str, redactor: Redactor) -> bytes:
    try:
        text = data.decode()
    except ValueError:
        return data
    return redactor.value(text, name).encode()
