"""The Telegram bot, on python-telegram-bot. Only `recollect telegram` loads that library.

bot.py       TelegramBot: reads updates in order and once; starting and stopping
messages.py  Telegram messages as Incoming, and their files
outlet.py    sending and editing messages, and the meaning of Telegram's errors
entities.py  Markdown as Telegram's text and entities
"""

from __future__ import annotations

import os

os.environ.setdefault("PTB_TIMEDELTA", "true")  # the library's future default; without it, every wait logs a warning
