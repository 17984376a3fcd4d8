"""Redaction of a bot's token in everything that is printed, logged or raised.

Libraries log it (in the URL of each request) and put it into their errors. Every log record of the process is redacted
with its traceback, for every handler.
"""

from __future__ import annotations

import contextlib
import logging
import re
import traceback
from collections.abc import Generator
from urllib.parse import quote

REDACTED = "[token]"
_MIN_TAIL_LENGTH = 8  # characters: a shorter part of a token after its colon would redact ordinary words


class Secrets:
    """Texts that must not appear in output, logs or errors."""

    def __init__(self, *secrets: str | None) -> None:
        variants: set[str] = set()
        for secret in secrets:
            if secret:
                tail = secret.rpartition(":")[2]
                variants |= {secret, quote(secret, safe=""), quote(secret), repr(secret)[1:-1]}
                variants |= {tail} if len(tail) >= _MIN_TAIL_LENGTH else set()
        longest_first = sorted(variants, key=len, reverse=True)
        # Case-insensitive, because a library may capitalize an error text that contains the secret.
        self._pattern = re.compile("|".join(re.escape(secret) for secret in longest_first) or r"(?!)", re.IGNORECASE)

    def redact(self, text: str) -> str:
        """Return a text with every secret replaced by REDACTED."""
        return self._pattern.sub(REDACTED, text)

    def contains(self, text: str) -> bool:
        """Return whether a text contains a secret."""
        return self._pattern.search(text) is not None

    @contextlib.contextmanager
    def hidden(self) -> Generator[None]:
        """Redact every log record of the process that is created inside the block."""
        factory = logging.getLogRecordFactory()

        def redacting_factory(*args: object, **options: object) -> logging.LogRecord:
            return self._redact_record(factory(*args, **options))

        logging.setLogRecordFactory(redacting_factory)
        try:
            yield
        finally:
            logging.setLogRecordFactory(factory)

    def _redact_record(self, record: logging.LogRecord) -> logging.LogRecord:
        try:
            text = record.getMessage()
        except (TypeError, ValueError, KeyError):
            text = f"{record.msg} {record.args}"
        if self.contains(text):
            record.msg, record.args = self.redact(text), ()
        if record.exc_info and record.exc_info[1] is not None:
            trace = "".join(traceback.format_exception(record.exc_info[1]))
            if self.contains(trace):
                record.exc_info, record.exc_text = None, self.redact(trace).rstrip()
        return record
