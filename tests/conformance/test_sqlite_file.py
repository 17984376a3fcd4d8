"""All of the suite, on a file."""

from recollect.testing import suite

globals().update(suite.classes())
