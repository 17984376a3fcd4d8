"""Makes the examples of every format importable, and imports google-genai without the warnings of its source."""

from __future__ import annotations

import pathlib
import sys
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "unit"))

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # invalid escape sequences, when Python compiles the package
    import google.genai._transformers
    import google.genai.types  # noqa: F401
