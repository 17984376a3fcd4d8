"""Counting tokens with a real tokenizer, where one is installed: its tables come with it and nothing is fetched."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from recollect.context.window import Counter
from recollect.errors import InvalidValue, displayed
from recollect.model.json import UNSET, standard
from recollect.model.message import Message
from recollect.model.part import AttachmentPart, DataPart, Part, ToolCallPart, ToolResultPart
from recollect.model.tokens import PER_ATTACHMENT, PER_MESSAGE

TOKENIZERS = {"o200k": "o200k_base", "cl100k": "cl100k_base"}


def counter(given: Counter | str | None) -> Counter | None:
    """Give the function that counts: the caller's own, or that of a tokenizer by its name."""
    if given is None or callable(given):
        return given
    if type(given) is not str or given not in TOKENIZERS:
        raise InvalidValue(
            f"There is no tokenizer {displayed(given)}. Use one of {', '.join(TOKENIZERS)}, or a function that takes a "
            "message."
        )
    encoder = _encoder(TOKENIZERS[given])

    def count(message: Message) -> int:
        total = PER_MESSAGE
        for part in message.parts:
            if isinstance(part, AttachmentPart):
                total += PER_ATTACHMENT
            for text in _texts(part):
                total += len(encoder(text))
        return total

    return count


@functools.cache
def _encoder(name: str) -> Any:
    try:
        import splintr  # noqa: PLC0415  an extra, and only where it is asked for
    except ImportError as error:
        raise InvalidValue(
            "This tokenizer is not installed. Install it with: pip install 'recollect[tokens]'"
        ) from error
    encode_ordinary = splintr.Tokenizer.from_pretrained(name).encode_ordinary
    return lambda text: encode_ordinary(text.encode("utf-8", "replace").decode())


def _texts(part: Part) -> Iterator[str]:
    """Give what a model reads of a part."""
    if isinstance(part, ToolCallPart):
        yield part.tool
        if part.arguments_text is not None:
            yield part.arguments_text
        elif part.arguments is not UNSET:
            yield standard(part.arguments)
    elif isinstance(part, ToolResultPart):
        yield part.output
    elif isinstance(part, DataPart):
        yield standard(part.native if part.data is UNSET else part.data)
    elif not isinstance(part, AttachmentPart):
        yield part.text
