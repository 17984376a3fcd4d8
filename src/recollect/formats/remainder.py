"""The provider-specific remainder of a message as people are shown it.

A remainder goes back to its provider with the message, so a person must be able to see it. Keys that are known to hold
nothing that a model reads (ids, signatures, cache marks) are listed here by format and not shown; everything else is
shown as data behind the parts of its message. A key that is not listed is never dropped: what came in comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recollect.formats.native import BLOCK, WHOLE, is_dict, is_list
from recollect.model.message import Draft, Message
from recollect.model.part import DataPart, Part, ToolResultPart

LABEL = "provider fields"
_EVERYWHERE = frozenset({"type", "id", "status", "detail", "format", "filename"})
_LISTED: dict[str, frozenset[str]] = {
    "anthropic": frozenset({"cache_control", "signature", "media_type", "title", "file_id", "is_error"}),
    "openai": frozenset({"cache_control", "encrypted_content"}),
    "openai-responses": frozenset({"encrypted_content", "phase", "logprobs", "role", "output_format"}),
    "ai-sdk": frozenset({"providerOptions", "providerMetadata", "mediaType", "mimeType"}),
    "ai-sdk-ui": frozenset(
        {
            "providerMetadata", "callProviderMetadata", "resultProviderMetadata", "state", "mediaType", "mimeType",
            "createdAt", "metadata", "toolInvocations", "joined", "shadow",
        }
    ),
}  # fmt: skip
# In a block that is kept whole, its own common fields: writing compares them with the ones that are shown.
_COMMON = frozenset(
    {"function", "custom", "name", "arguments", "input", "toolCallId", "toolName", "args", "result", "output"}
    | {"toolInvocation", "isError", "state", "step"}
)


def shown(message: Draft | Message) -> Sequence[Part]:
    """Return the parts of a message as they are shown, with its unlisted remainder as a last part."""
    found = unlisted(message)
    return (*message.parts, DataPart(data={LABEL: found})) if found else message.parts


def unlisted(message: Draft | Message) -> Any:
    """Return what would go back to the provider and is neither a common field nor listed; empty if nothing is."""
    listed = _LISTED.get(message.format or "")
    if listed is None:  # only a provider's own format sends a remainder back
        return {}
    found = [_pruned(_of_message(message.native), listed | _EVERYWHERE)]
    found += [_of_part(part, listed | _EVERYWHERE) for part in message.parts]
    left = [item for item in found if not _is_empty(item)]
    return left[0] if len(left) == 1 else left


def of_block(block: Any) -> Any:
    """Return what a block of a file holds beside the file; empty if nothing."""
    files = frozenset({"source", "image_url", "input_audio", "file", "file_data", "file_url", "title", "name"})
    return _pruned(block, files | _EVERYWHERE | _LISTED["anthropic"])


def _of_message(native: dict[str, Any] | None) -> Any:
    """Return what of the remainder is sent with the message itself; a whole response is not."""
    if native is None:
        return {}
    items = native.get("items")
    fields = [entry.get("fields") for entry in items if is_dict(entry)] if is_list(items) else []
    return [native.get("fields"), *fields]


def _of_part(part: Part, listed: frozenset[str]) -> Any:
    if type(part) is DataPart:
        return {}  # shown whole
    native = part.native
    if is_dict(native) and BLOCK in native:
        found = _pruned(native[BLOCK], listed)
    elif is_dict(native) and WHOLE in native:
        found = _pruned(native[WHOLE], listed | _COMMON)
    else:
        found = _pruned(native, listed)
    if type(part) is not ToolResultPart or part.content is None:
        return found
    pieces = [piece.native if type(piece) is DataPart else _of_part(piece, listed) for piece in part.content]
    inside = [item for item in pieces if not _is_empty(item)]
    return [found, *inside] if inside and not _is_empty(found) else inside or found


def _pruned(value: Any, listed: frozenset[str]) -> Any:
    """Leave listed keys, nulls and what is empty out of a value."""
    if is_dict(value):
        inside = {name: _pruned(item, listed) for name, item in value.items() if name not in listed}
        return {name: item for name, item in inside.items() if not _is_empty(item)}
    if is_list(value):
        found = [item for item in (_pruned(item, listed) for item in value) if not _is_empty(item)]
        return found[0] if len(found) == 1 and is_dict(found[0]) else found
    return value


def _is_empty(value: Any) -> bool:
    return value is None or value == "" or (type(value) in (dict, list) and not value)
