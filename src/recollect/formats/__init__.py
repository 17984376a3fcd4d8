"""Messages as providers write them, in and out of the model.

One file per format, each with read(), write() and response(), a provider's also with put(): pure functions that import
no SDK and know no database.
What came in one format goes out equal in that format, whatever it holds, and is translated into the others.

    registry.py    the formats by their names; which one a message is in
    native.py      what is kept beside our fields, and how it is put back
    neutral.py     what means the same in every format
    attachment.py  images, documents and other files
    guess.py       which format a message is in
    anthropic.py
    openai.py      chat completions; openai_translation.py: messages of other formats as these
    openai_responses.py, openai_items.py    the Responses API, and its single items
    ai_sdk.py, ai_sdk_ui.py                 model messages and UI messages
    ai_sdk_conversion.py                    from the second to the first, by the AI SDK's own rules
    plain.py       "recollect"

They are loaded with the first message that is read or written: a command that lists sessions needs none.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recollect.formats.registry import FORMATS, faithful, putter, read, response, write

__all__ = ["FORMATS", "faithful", "putter", "read", "response", "write"]


if not TYPE_CHECKING:  # to a type checker that sees it, every name of the module exists

    def __getattr__(name: str) -> Any:
        """Load the formats; from then on each of these names is found without this."""
        if name not in __all__:
            raise AttributeError(f"module 'recollect.formats' has no attribute {name!r}")
        from recollect.formats import registry  # noqa: PLC0415

        globals().update({known: getattr(registry, known) for known in __all__})
        return globals()[name]


def _load_all() -> None:
    """Load the rest. A child could never use a module that another thread was about to load when it was forked."""
    from recollect.formats import registry  # noqa: PLC0415

    registry.load_all()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_load_all)
