"""No traces: the SDK would send them to OpenAI."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_tracing(monkeypatch):
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
