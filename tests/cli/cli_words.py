"""What people say in these tests."""

from __future__ import annotations


def said(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}
