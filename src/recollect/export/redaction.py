"""Secrets in what is written out, masked: `[redacted:github-token]` stands where one was.

It works on values, never on written JSON, so that no structure breaks and no escape hides a secret. A secret is known
by its form (a provider's key), by what it stands in (a header, a URL, a PEM block) or by the name beside it
(password=..., "api_key": ...). The same secret always gives the same mark. It is a net, not a proof: what looks like
any other word is not found.
"""

from __future__ import annotations

import base64
import re
from typing import Any, NamedTuple

_EDGE = r"(?<![A-Za-z0-9_])"
_END = r"(?![A-Za-z0-9_\-])"


class _Rule(NamedTuple):
    name: str
    pattern: re.Pattern[str]
    needs: tuple[str, ...]
    """Words of which one is in every text that fits, so that the rest is not looked at; lower case."""


def _rule(name: str, pattern: str, *needs: str, flags: int = 0) -> _Rule:
    return _Rule(name, re.compile(pattern, flags), needs)


def _token(name: str, body: str, *needs: str) -> _Rule:
    return _rule(name, f"{_EDGE}(?P<secret>{body}){_END}", *needs)


# The order matters: what is told from more comes first.
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

_NAMES = (
    r"pass(?:word|wd|phrase|code)|passwd|pwd|"
    r"secret(?:[_\-]?(?:access[_\-]?)?(?:key|token))?|"
    r"(?:api|access|auth|app|master|private|signing|encryption|account|license|ssh)[_\-]?key(?:[_\-]?id)?|"
    r"(?:api|access|client|app|consumer|shared|signing|webhook|jwt)[_\-]?secret|"
    r"(?:api|access|auth|refresh|session|id|bearer|bot|deploy|registry|personal|csrf|xsrf)?[_\-]?token|"
    r"credentials?|connection[_\-]?string|cookie"
)
_LOOSE = re.compile(r"(?:^|[_.\-])(?:token|secret|credentials?|cookie|key[_\-]?id)$", re.IGNORECASE)
"""Names that are words of a sentence as well, so that what follows must look like a secret."""

_HINTS = ("pass", "pwd", "secret", "key", "token", "credential", "cookie", "string")
"""One of these is in every such name."""

# A name as it stands before `=` or `:` in code, in an env file, in YAML: API_KEY=..., db.password: "...".
_ASSIGNED = re.compile(
    rf"""(?<![A-Za-z0-9])(?P<name>(?:[A-Za-z0-9]{{1,32}}[_.\-]){{0,6}}(?:{_NAMES}))
    (?P<gap>["']?[ \t]{{0,8}}(?:=>|:=|=(?!=)|:(?!:))[ \t]{{0,8}})
    (?:(?P<quote>["'`])(?P<quoted>(?:(?!(?P=quote))[^\\\n]|\\.){{4,4096}})(?P=quote)
    |(?P<bare>[^\s"'`,;(){{}}\[\]<>]{{6,4096}}))""",
    re.IGNORECASE | re.VERBOSE,
)
_NAMED = re.compile(rf"(?:^|[_.\-\s])(?:{_NAMES})$", re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_MARK = re.compile(r"\[redacted:[a-z\-]+\]")

# What stands for a value and is none.
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
_TYPED = ("mime_type", "media_type", "mimeType", "mediaType", "mimetype")
_LONG = 2_048
_SHORTEST = 6
_TELLING = 16


class Redactor:
    """Masks secrets in text and in plain data; says how many it found, by kind."""

    def __init__(self) -> None:
        self.found: dict[str, int] = {}

    def text(self, text: str) -> str:
        """Mask the secrets in a text."""
        if len(text) < _SHORTEST:  # nothing that short is told from a word
            return text
        low = text.lower()
        for rule in _RULES:
            if any(word in low for word in rule.needs):
                text = rule.pattern.sub(lambda match, rule=rule: self._masked(match, rule.name), text)
        return _ASSIGNED.sub(self._assigned, text) if any(word in low for word in _HINTS) else text

    def value(self, value: Any, name: str = "") -> Any:
        """Mask the secrets in plain data. What a key names as one is masked whatever it looks like."""
        if isinstance(value, str):
            return self._named(value, name) if name and _names_secret(name) else self._string(value)
        if isinstance(value, dict):
            return self._object(value)
        if isinstance(value, list | tuple):
            return [self.value(item, name) for item in value]
        return value

    def _object(self, value: dict[str, Any]) -> dict[str, Any]:
        typed = any(isinstance(value.get(key), str) for key in _TYPED) or value.get("type") == "base64"
        masked: dict[str, Any] = {}
        for key, item in value.items():
            told = self.text(key)
            while told in masked:
                told += "'"
            if typed and key == "data" and isinstance(item, str):
                masked[told] = self._payload(item)
            else:
                masked[told] = self.value(item, key)
        return masked

    def _string(self, text: str) -> str:
        if text[:5].lower() == "data:" and (match := _URL.match(text)):
            return text[: match.end()] + self._payload(text[match.end() :])
        if len(text) >= _LONG and _BASE64.fullmatch(text):
            return self._payload(text)
        return self.text(text)

    def _payload(self, text: str) -> str:
        """Mask the secrets in an attachment, if it is a text; another file is left as it is."""
        try:
            words = base64.b64decode(text, validate=True).decode()
        except ValueError:  # not base64, or no text
            words = ""
        masked = words if "\0" in words else self.text(words)
        if masked != words:
            return base64.b64encode(masked.encode()).decode()
        # Some keys are letters and digits alone, as a file is. What is longer than any of them is a file.
        return text if len(text) >= _LONG and _BASE64.fullmatch(text) else self.text(text)

    def _named(self, text: str, name: str) -> str:
        """Mask the value of a field that is called as a secret is."""
        masked = self._string(text)
        if masked != text or _PLACEHOLDER.fullmatch(text):
            return masked
        telling = len(text) >= _TELLING or any(letter.isdigit() for letter in text)
        if (_LOOSE.search(name) and not telling) or " " in text.strip():
            return masked
        return self._mark("secret")

    def _masked(self, match: re.Match[str], name: str) -> str:
        secret = match["secret"]
        if _MARK.search(secret) or secret[:1] in "$<{" or not secret.strip("*xX."):
            return match[0]
        start, end = match.span("secret")
        return match[0][: start - match.start()] + self._mark(name) + match[0][end - match.start() :]

    def _assigned(self, match: re.Match[str]) -> str:
        group = "quoted" if match["quoted"] is not None else "bare"
        if not _is_secret(match[group], match["name"], match["gap"], quoted=group == "quoted"):
            return match[0]
        start, end = match.span(group)
        return match[0][: start - match.start()] + self._mark("secret") + match[0][end - match.start() :]

    def _mark(self, name: str) -> str:
        self.found[name] = self.found.get(name, 0) + 1
        return f"[redacted:{name}]"


def _names_secret(name: str) -> bool:
    """Whether the name of a field says that it holds a secret: apiKey, DB_PASSWORD, client-secret; not max_tokens."""
    return len(name) <= 64 and bool(_NAMED.search(_CAMEL.sub("_", name)))  # noqa: PLR2004


def _is_secret(value: str, name: str, gap: str, *, quoted: bool) -> bool:
    """Whether what is assigned to such a name in a text is a secret, and not code, a placeholder or a sentence."""
    if _MARK.search(value) or _PLACEHOLDER.fullmatch(value):
        return False
    if not quoted and value.startswith(("http://", "https://", "/", "./", "../", "~/")):
        return False
    told = any(letter.isdigit() for letter in value)
    if _LOOSE.search(name):
        return told and len(value) >= _SHORTEST + 2 and " " not in value
    if quoted:
        return " " not in value or told
    # PASSWORD=letmein is a line of an env file; `password = letters` is code, and `password: letters` a sentence.
    return told or not _IDENTIFIER.fullmatch(value) or gap.strip("\"'") == "="
