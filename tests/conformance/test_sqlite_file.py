"""The complete suite on a SQLite file."""

from recollect_conformance import suite

globals().update(suite.classes())
