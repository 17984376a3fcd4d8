"""Provider message formats: reading messages into the model and writing them back.

parse(), render() and response() convert messages without a store; they and RegisteredFormat are public. There is one
module per format, each with read(), write() and response(), and for a provider's format also put() and the provider's
rules. They are pure functions that import no SDK and no database. A message is written back equal in the format it was
read in, and translated into the others.

    registry.py        formats by name, with their modules; reading and writing in any of them
    detection.py       detects the format of a message
    provider_rules.py  the rules of a provider, as data
    remainder.py       the provider-specific remainder: all fields besides the common ones
    display.py         the parts of a message as people see them
    common.py          the common fields, which have the same meaning in every format
    alternation.py     translation for providers whose roles alternate
    attachments.py     images, documents and other files
    byte_values.py     bytes in the messages of SDKs that use them
    boundaries.py      where the output of a format no longer depends on earlier messages

They are imported when the first message is read or written: a command that lists sessions needs none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recollect.lazy_imports import import_before_fork
from recollect.model.message import RegisteredFormat

if TYPE_CHECKING:
    from recollect.formats.registry import FORMATS as FORMATS
    from recollect.formats.registry import PROVIDERS as PROVIDERS
    from recollect.formats.registry import check_format as check_format
    from recollect.formats.registry import is_provider as is_provider
    from recollect.formats.registry import load_rules as load_rules
    from recollect.formats.registry import parse as parse
    from recollect.formats.registry import put_function as put_function
    from recollect.formats.registry import read as read
    from recollect.formats.registry import read_with_keys as read_with_keys
    from recollect.formats.registry import render as render
    from recollect.formats.registry import response as response
    from recollect.formats.registry import without_contradicting_remainder as without_contradicting_remainder
    from recollect.formats.registry import write as write

__all__ = ["RegisteredFormat", "parse", "render", "response"]

_INTERNAL_NAMES = frozenset({
    "FORMATS", "PROVIDERS", "check_format", "is_provider", "load_rules", "put_function", "read", "read_with_keys",
    "without_contradicting_remainder", "write",
})  # fmt: skip
"""Names that other packages of Recollect import from here."""


if not TYPE_CHECKING:  # a type checker that sees it would accept any name

    def __getattr__(name: str) -> Any:
        """Load the formats on first use, and set the names of this module."""
        if name not in __all__ and name not in _INTERNAL_NAMES:
            raise AttributeError(f"module 'recollect.formats' has no attribute {name!r}")
        from recollect.formats import registry  # noqa: PLC0415

        globals().update(
            {name: getattr(registry, name) for name in (*__all__, *_INTERNAL_NAMES) if name not in globals()}
        )
        return globals()[name]


def _load_all() -> None:
    """Load all formats before a fork: a child could deadlock on an import that another thread had begun."""
    from recollect.formats import registry  # noqa: PLC0415

    registry.load_all()


import_before_fork(_load_all)
