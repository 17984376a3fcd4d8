"""Secrets are redacted in every position, and ordinary words, code and data are unchanged."""

from __future__ import annotations

import base64
import json
import uuid

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recollect.export.redaction import Redactor, redact_record
from recollect.storage.row_stream import FullRecordRow

# Invented, and written in pieces so that secret scanners do not report them.
A36 = "a1B2c3D4e5" * 3 + "F6g7H8"
KEYS = {
    "anthropic-key": "sk-" + "ant-api03-" + A36 + "-_AA",
    "openai-key": "sk-" + "proj-" + A36,
    "aws-key-id": "AK" + "IAIOSFODNN7EXAMPLE",
    "github-token": "gh" + "p_" + A36,
    "gitlab-token": "gl" + "pat-" + A36[:20],
    "slack-token": "xo" + "xb-123456789012-" + A36[:12],
    "google-key": "AI" + "za" + A36[:35],
    "huggingface-token": "h" + "f_" + A36[:34],
    "stripe-key": "sk" + "_live_" + A36[:24],
    "npm-token": "np" + "m_" + A36,
    "pypi-token": "py" + "pi-AgEIcHlwaS5vcmc" + A36 + A36,
    "jwt": "ey" + "JhbGciOiJIUzI1NiJ9.ey" + "JzdWIiOiIxMjM0NTY3ODkwIn0." + A36,
    "telegram-token": "1234567890" + ":AAE" + A36[:32],
    "discord-token": "M" + "TIzNDU2Nzg5MDEyMzQ1Njc4.GaBcDe." + A36[:30],
    "sendgrid-key": "S" + "G." + A36[:22] + "." + A36 + "abcdefg",
    "groq-key": "gs" + "k_" + A36 + A36[:16],
    "google-oauth": "GOC" + "SPX-" + A36[:28],
    "openrouter-key": "sk-" + "or-v1-" + "ab12" * 16,
}
OTHER = [
    ("github-token", "github_" + "pat_11ABCDEFG0" + A36),
    ("openai-key", "sk-" + A36 + A36[:12]),
    ("slack-token", "xap" + "p-1-A0123-" + A36[:20]),
    ("stripe-key", "rk" + "_test_" + A36[:24]),
    ("discord-webhook", "https://discord.com/api/web" + "hooks/123456789012345678/" + A36 * 2),
    ("slack-webhook", "https://hooks.slack.com/serv" + "ices/T0000/B0000/" + A36[:24]),
]
PEM = "-----BEGIN RSA PRIVATE" + " KEY-----\nMIIEow" + A36 + "\n" + A36 + "\n-----END RSA PRIVATE" + " KEY-----"


def redact(text):
    return Redactor().text(text)


@pytest.mark.parametrize(("name", "key"), [*KEYS.items(), *OTHER], ids=str)
@pytest.mark.parametrize("around", ["{}", "use {} now", '"{}"', "({})", "a={},b", "x\n{}\ny", "`{}`", "key: {}."])
def test_a_key_of_a_known_format_is_redacted_in_any_context(name, key, around):
    assert redact(around.format(key)) == around.format(f"[redacted:{name}]")


def test_the_same_secret_gets_the_same_mark_and_is_counted():
    redactor = Redactor()
    key = KEYS["github-token"]
    assert redactor.text(f"{key} {key}") == "[redacted:github-token] [redacted:github-token]"
    assert redactor.counts == {"github-token": 2}


def test_a_private_key_is_redacted_whole_and_a_public_key_is_unchanged():
    assert redact(f"before\n{PEM}\nafter") == "before\n[redacted:private-key]\nafter"
    assert redact(PEM[:60]) == "[redacted:private-key]"  # truncated
    public = "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----"
    assert redact(public) == public


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Authorization: Bearer abc.def-123456", "Authorization: Bearer [redacted:authorization]"),
        ("authorization: basic dXNlcjpwYXNz", "authorization: basic [redacted:authorization]"),
        ('-H "Authorization: Bearer 0123456789abcdef"', '-H "Authorization: Bearer [redacted:authorization]"'),
        ("Bearer 0123456789abcdef0123", "Bearer [redacted:authorization]"),
        ("postgres://ann:s3cr3t@db/x", "postgres://ann:[redacted:url-password]@db/x"),
        ("https://:pw@host/", "https://:[redacted:url-password]@host/"),
        ("redis://u:p%40ss@h:6379/0", "redis://u:[redacted:url-password]@h:6379/0"),
        ("https://x.test/a?access_token=abcdefgh12&b=1", "https://x.test/a?access_token=[redacted:url-token]&b=1"),
        ("PASSWORD=letmein", "PASSWORD=[redacted:secret]"),
        ("export DB_PASSWORD='correct horse 9'", "export DB_PASSWORD='[redacted:secret]'"),
        ('api_key = "abcdef"', 'api_key = "[redacted:secret]"'),
        ("apiKey: 'zzzz-yyyy'", "apiKey: '[redacted:secret]'"),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG", "AWS_SECRET_ACCESS_KEY=[redacted:secret]"),
        ("client-secret: 8f3b2a1c9d", "client-secret: [redacted:secret]"),
        ('{"password": "hunter2!"}', '{"password": "[redacted:secret]"}'),
        ("token: 9f8e7d6c5b4a", "token: [redacted:secret]"),
        ("MY_TOKEN=tok12345", "MY_TOKEN=[redacted:secret]"),
        ("password:hunter2", "password:[redacted:secret]"),
    ],
)  # fmt: skip
def test_a_value_in_a_field_for_secrets_is_redacted(text, expected):
    assert redact(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "The secret: never give up.",
        "Your password must have 8 characters.",
        "Password: required",
        "token: the smallest unit of text",
        "max_tokens=4096, total_tokens: 123456",
        "input_tokens: 1234567, output_tokens=7654321",
        "password = getpass.getpass()",
        "password = os.environ['DB_PASSWORD']",
        "api_key=config.api_key",
        "api_key: str | None = None",
        "def login(user, password: str, token: Optional[str]):",
        "PASSWORD=$DB_PASSWORD",
        "api_key=${API_KEY}",
        "token = <your token>",
        "api_key: your-key-here",
        "password=********",
        "if token == expected:",
        "for token in tokens: print(token)",
        "git commit 3f786850e387550fdab836ed7e6dc881de23001b",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        str(uuid.UUID(int=0x1234567890ABCDEF1234567890ABCDEF)),
        "https://example.org/a:b@c",
        "mail ann@example.org, at 10:30",
        "https://github.com/a/b?tab=readme&key=value",
        "sk-learn and sk-image are packages; sk-something-long-enough-to-be-a-name",
        "the ghp_ prefix, AKIA, hf_ models and npm_config_registry",
        "key: value, primary_key=True, foreign_key: orders.id",
        "keyboard=qwertz123 monkey=banana12",
        "2025-11-16T10:00:00.123Z 12345678:90",
        "C:\\Users\\ann\\token.txt",
        "print(f'{token:>20}')",
        "Bearer of bad news; the ring bearer carried it away",
        "passive=aggressive99 compass: north1234",
        "a::secret::b12345678",
    ],
)
def test_ordinary_words_and_code_are_unchanged(text):
    assert redact(text) == text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"password": "hunter2"}, {"password": "[redacted:secret]"}),
        ({"apiKey": "abcdef"}, {"apiKey": "[redacted:secret]"}),
        ({"headers": {"Authorization": "Bearer abcdef0123456789abcd"}}, {"headers": {"Authorization": "Bearer [redacted:authorization]"}}),
        ({"DB_PASSWORD": ["a1b2c3", "ok"]}, {"DB_PASSWORD": ["[redacted:secret]", "[redacted:secret]"]}),
        ({"token": 12345, "n": None, "t": True}, {"token": 12345, "n": None, "t": True}),
        ({"password": ""}, {"password": ""}),
        ({"properties": {"password": {"type": "string"}}}, {"properties": {"password": {"type": "string"}}}),
        ({"password": "string", "token": "end"}, {"password": "string", "token": "end"}),
        ({"max_tokens": "4096", "tokenizer": "cl100k_base"}, {"max_tokens": "4096", "tokenizer": "cl100k_base"}),
        ({"text": "a", KEYS["github-token"]: 1}, {"text": "a", "[redacted:github-token]": 1}),
    ],
)  # fmt: skip
def test_values_are_redacted_by_the_name_of_their_field(value, expected):
    assert Redactor().value(value) == expected


def test_an_escaped_secret_is_redacted_because_values_are_decoded_first():
    key = KEYS["github-token"]
    text = '{"a": "' + "".join(f"\\u{ord(letter):04x}" for letter in key) + '"}'
    assert Redactor().value(json.loads(text)) == {"a": "[redacted:github-token]"}


def test_a_text_attachment_is_redacted_and_an_image_is_not():
    encoded_text = base64.b64encode(f"# .env\nTOKEN={KEYS['github-token']}\n".encode()).decode()
    encoded_image = base64.b64encode(bytes(range(256)) * 40).decode()
    part = {"kind": "attachment", "mime_type": "text/plain", "data": encoded_text}
    redacted = Redactor().value(part)
    assert base64.b64decode(redacted["data"]) == b"# .env\nTOKEN=[redacted:github-token]\n"
    for value in (
        {**part, "data": encoded_image},
        {"url": "data:image/png;base64," + encoded_image},
        {"x": encoded_image},
    ):
        assert Redactor().value(value) == value
    assert Redactor().value({**part, "data": KEYS["aws-key-id"]})["data"] == "[redacted:aws-key-id]"
    url = Redactor().value({"url": "data:text/plain;base64," + encoded_text})
    assert KEYS["github-token"].encode() not in base64.b64decode(url["url"].partition(",")[2])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from([*KEYS.values(), PEM]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.sampled_from(["password", "token", "data", "mime_type"]), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


def shape(value):
    if isinstance(value, dict):
        return [shape(item) for item in value.values()]
    return [shape(item) for item in value] if isinstance(value, list) else type(value)


@settings(deadline=None)
@given(JSON)
@example({"data": KEYS["aws-key-id"], "mime_type": ""})
def test_redaction_preserves_the_structure_removes_all_keys_and_is_idempotent(value):
    redactor = Redactor()
    redacted = redactor.value(value)
    assert shape(redacted) == shape(value)
    text = json.dumps(redacted)
    assert not [key for key in KEYS.values() if key in text]
    assert redactor.value(redacted) == redacted


@pytest.mark.parametrize(
    "text",
    [
        "a" * 200_000,
        "-----BEGIN PRIVATE" + " KEY-" * 30_000,
        "://" * 60_000,
        "token=" * 30_000,
        "a_" * 100_000 + "password",
        "eyJ" * 60_000,
        "password: '" + "\\" * 100_001,
        "1234567890:" * 20_000,
        "M" * 100_000 + ".",
        "https://" + "a:" * 80_000,
        "Authorization: " * 10_000,
        "sk-" * 50_000,
    ],
    ids=range(12),
)  # fmt: skip
def test_a_hostile_text_takes_linear_time(text):
    """Quadratic time would be minutes."""
    assert redact(text) == text


class TestRecords:
    """Keyed records of a session: the key and the value are masked."""

    SECRET = KEYS["anthropic-key"]

    def redact(self, names=None, **columns):
        row = {"kind": "k", "key": b"x", "revision": 1, "created_at": 1, "updated_at": 1, "value": None, "data": None}
        return redact_record(FullRecordRow(**{**row, **columns}), set() if names is None else names, Redactor())

    def test_json_is_masked(self):
        row = self.redact(value=json.dumps({"a": [f"key {self.SECRET}"], self.SECRET: 1}))
        assert json.loads(row.value) == {"a": ["key [redacted:anthropic-key]"], "[redacted:anthropic-key]": 1}

    def test_a_key_can_name_a_secret(self):
        assert json.loads(self.redact(key=b"api_key", value='"hunter2hunter2"').value) == "[redacted:secret]"
        assert self.redact(key=b"api_key", data=b"hunter2hunter2").data == b"[redacted:secret]"

    def test_bytes_are_masked_if_they_are_text(self):
        assert self.redact(data=f"key {self.SECRET}".encode()).data == b"key [redacted:anthropic-key]"
        binary = b"\xff" + self.SECRET.encode()
        assert self.redact(data=binary).data == binary

    def test_keys_stay_different(self):
        names = set()
        keys = [self.redact(names, key=f"{self.SECRET}{number}".encode()).key for number in range(3)]
        assert keys == [b"[redacted:anthropic-key]", b"[redacted:anthropic-key]'", b"[redacted:anthropic-key]''"]
        assert self.redact(names, key=b"plain").key == b"plain"
