"""A bot token never appears in the log, even if a library logs it."""

from __future__ import annotations

import io
import logging

import pytest

from recollect.channels.bot.token_redaction import Secrets

TOKEN = "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"
TAIL = TOKEN.partition(":")[2]


def fail():
    raise RuntimeError("outer") from ValueError(TOKEN)


@pytest.fixture
def library_log():
    stream = io.StringIO()
    log = logging.getLogger("some.library")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s %(args)s"))
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    log.propagate = False
    yield log, stream
    log.removeHandler(handler)


def test_messages_arguments_and_tracebacks_are_redacted(library_log):
    log, stream = library_log
    with Secrets(TOKEN).hidden():
        log.info("POST https://example.org/bot%s/getMe", TOKEN)
        log.info("POST %s", {"url": f"/bot{TOKEN.replace(':', '%3A')}/x"})
        log.warning(TOKEN.upper())
        log.info("%d", TOKEN)
        try:
            fail()
        except RuntimeError:
            log.exception("failed with %s", TAIL)
        log.info("plain %s", "text")
    output = stream.getvalue()
    assert TAIL.lower() not in output.lower()
    assert "RuntimeError: outer" in output
    assert "plain text" in output
    assert output.count("[token]") >= 5


def test_the_log_record_factory_is_restored():
    before = logging.getLogRecordFactory()
    with Secrets(TOKEN).hidden():
        assert logging.getLogRecordFactory() is not before
    assert logging.getLogRecordFactory() is before


def test_missing_and_short_secrets_redact_nothing():
    assert Secrets(None, "").redact("a text") == "a text"
    assert Secrets("x:short").redact("a short text") == "a short text"
