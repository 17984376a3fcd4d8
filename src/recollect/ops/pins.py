"""Pins: messages that stay in every history, however old they are. The mark is in the message's own metadata.

Where pinned messages and instructions are is also kept apart, so that a long past need not be read to find them.
"""

from __future__ import annotations

import msgspec

from recollect.model import json
from recollect.model.message import Message
from recollect.op import Op, Scope, Steps, do, each
from recollect.ops import messages, sessions
from recollect.ops.paths import MessageId


def mark(scope: Scope, session: str, name: MessageId, *, pinned: bool) -> Op[Message]:
    """Pin a message, or let go of it. It is the same message in every fork that shares it."""
    return Op(_mark, scope, session, name, pinned)


def _mark(scope: Scope, session: str, name: MessageId, pinned: bool) -> Steps[Message]:
    here = yield from sessions.find(scope, session)
    span, message = yield from messages.located(scope, session, here, name, lock=True)
    if message.pinned == pinned:
        return message
    metadata = {key: value for key, value in (message.metadata or {}).items() if key != "pinned"}
    if pinned:
        metadata["pinned"] = True
    text = json.encode(metadata) if metadata else None
    yield from do("message_annotate", branch=span.branch, position=span.high, metadata=text)
    if pinned:
        yield from each("pin_insert", [(span.branch, span.high)])
    elif message.role != "system":
        yield from do("pin_delete", branch=span.branch, position=span.high)
    yield from messages.recount(scope, here.tree, span.branch, span.high, messages.Change(0, 0, 0, 0))
    return msgspec.structs.replace(message, metadata=metadata or None)
