"""The complete suite on a SQLite file."""

from __future__ import annotations

import pytest

from recollect_conformance import suite

globals().update(suite.classes())
pytestmark = pytest.mark.parametrize("connect", ["sync", "asyncio", "trio"], indirect=True)
