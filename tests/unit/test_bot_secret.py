"""A token that is in nothing that is logged, whatever a library does with it."""

from __future__ import annotations

import io
import logging

import pytest

from recollect.channels.bot.secret import Secrets

TOKEN = "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"
TAIL = TOKEN.partition(":")[2]


def fail():
    raise RuntimeError("outer") from ValueError(TOKEN)


@pytest.fixture
def logged():
    stream = io.StringIO()
    log = logging.getLogger("some.library")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s %(args)s"))
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    log.propagate = False
    yield log, stream
    log.removeHandler(handler)


def test_messages_arguments_and_tracebacks(logged):
    log, stream = logged
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
    told = stream.getvalue()
    assert TAIL.lower() not in told.lower()
    assert "RuntimeError: outer" in told
    assert "plain text" in told
    assert told.count("[token]") >= 5


def test_outside_of_it_records_are_made_as_before():
    before = logging.getLogRecordFactory()
    with Secrets(TOKEN).hidden():
        assert logging.getLogRecordFactory() is not before
    assert logging.getLogRecordFactory() is before


def test_without_a_secret_nothing_is_hidden():
    assert Secrets(None, "").hide("a text") == "a text"
    assert Secrets("x:short").hide("a short text") == "a short text"
