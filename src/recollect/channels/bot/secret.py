"""Keeping a bot's token out of everything that is printed, logged or raised.

Libraries put it into what they log (the address of each request) and into their errors. Every log record of the process
goes through here, with its traceback, whatever handler it ends in.
"""

from __future__ import annotations

import contextlib
import logging
import re
import traceback
from collections.abc import Generator
from urllib.parse import quote

HIDDEN = "[token]"
_SHORTEST = 8


class Secrets:
    """The texts that nobody may see."""

    def __init__(self, *secrets: str | None) -> None:
        found: set[str] = set()
        for secret in secrets:
            if secret:
                tail = secret.rpartition(":")[2]
                found |= {secret, quote(secret, safe=""), quote(secret), repr(secret)[1:-1]}
                found |= {tail} if len(tail) >= _SHORTEST else set()
        longest_first = sorted(found, key=len, reverse=True)
        # In any case: a library that quotes an error may begin it with a capital and write the rest small.
        self._pattern = re.compile("|".join(re.escape(secret) for secret in longest_first) or r"(?!)", re.IGNORECASE)

    def hide(self, text: str) -> str:
        """Give a text without them."""
        return self._pattern.sub(HIDDEN, text)

    def within(self, text: str) -> bool:
        """Say whether one of them is in a text."""
        return self._pattern.search(text) is not None

    @contextlib.contextmanager
    def hidden(self) -> Generator[None]:
        """Keep them out of every log record that is made meanwhile."""
        make = logging.getLogRecordFactory()

        def made(*args: object, **options: object) -> logging.LogRecord:
            return self._cleaned(make(*args, **options))

        logging.setLogRecordFactory(made)
        try:
            yield
        finally:
            logging.setLogRecordFactory(make)

    def _cleaned(self, record: logging.LogRecord) -> logging.LogRecord:
        try:
            text = record.getMessage()
        except (TypeError, ValueError, KeyError):
            text = f"{record.msg} {record.args}"
        if self.within(text):
            record.msg, record.args = self.hide(text), ()
        if record.exc_info and record.exc_info[1] is not None:
            shown = "".join(traceback.format_exception(record.exc_info[1]))
            if self.within(shown):
                record.exc_info, record.exc_text = None, self.hide(shown).rstrip()
        return record
