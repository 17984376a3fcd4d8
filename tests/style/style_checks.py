"""The checks by name, as allowed.toml names them."""

from __future__ import annotations

import style_python
import style_sql
import style_words
from style_files import Check

CHECKS: dict[str, Check] = {
    "words": style_words.words,
    "participles": style_words.participles,
    "docstrings": style_python.docstrings,
    "classes": style_python.classes,
    "errors": style_python.errors,
    "exceptions": style_python.exceptions,
    "constants": style_python.constants,
    "sizes": style_python.sizes,
    "rows": style_python.rows,
    "sql": style_sql.sql,
}
