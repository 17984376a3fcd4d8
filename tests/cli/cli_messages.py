"""Messages for the tests of the command line."""

from __future__ import annotations


def user_message(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}
