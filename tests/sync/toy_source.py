"""Two sources of a toy format, to test the writer: lines of JSON objects, and a document with a list of conversations.

A line has "id", "after", "text" and "at", or one of "title", "compact", "active", "fork", "child". A line of another
kind is unknown.
"""

from __future__ import annotations

import json

from recollect.model.message import AttachmentPart, Draft, TextPart
from recollect.sources.source import (
    ActiveFound,
    CompactionFound,
    ForkFound,
    MessageFound,
    Note,
    Original,
    ReadFromStart,
    SessionFound,
    Transcript,
    select_all,
)
from recollect.sources.sqlite_copy import side_files


def read_item(session, item, place):
    """Return the events of a line or of an item of a document."""
    if "id" in item:
        parts = [TextPart(text=item["text"])]
        if "image" in item:
            parts.append(AttachmentPart(mime_type="image/png", data=item["image"]))
        draft = Draft(
            role=item.get("role", "user"), parts=tuple(parts), key=item["id"], created_at=item.get("at"),
            input_tokens=item.get("tokens"),
        )  # fmt: skip
        return [MessageFound(item.get("session", session), draft, item.get("after"))]
    if "title" in item:
        return [SessionFound(session, title=item["title"], title_rank=item.get("rank", 2), metadata=item.get("meta"))]
    if "labels" in item:
        return [SessionFound(session, labels=tuple(item["labels"]))]
    if "compact" in item:
        return [CompactionFound(session, item["compact"], item["summary"], item.get("at"))]
    if "active" in item:
        return [ActiveFound(session, item["active"])]
    if "fork" in item:
        return [ForkFound(session, item["fork"], item["last"])]
    if "sub-agent of" in item:
        return [SessionFound(session, parent=item["sub-agent of"])]
    if "child" in item:
        return [SessionFound(item["child"], parent=session)]
    return [Note("unknown", place, "A line of an unknown kind.")]


class ToyReader:
    def __init__(self, state, name):
        state = state or {}
        self.session = state.get("session")
        self._name, self._count = name, state.get("lines", 0)

    def read_line(self, number, line):
        assert number > self._count, "no line is read twice"
        self._count = number
        if not isinstance(line, dict):
            return [Note("unknown", f"{self._name}:{number}", "A line is not an object.")]
        if "start" in line:
            self.session = f"toy:{line['start']}"
            return [SessionFound(self.session, working_dir=line.get("cwd"))]
        if line.get("rewind"):
            raise ReadFromStart
        return read_item(self.session, line, f"{self._name}:{number}")

    def finish(self):
        return []

    def state(self):
        return {"session": self.session, "lines": self._count}


class ToySource:
    name, label, copies_past = "toy", "Toy", True

    def discover(self, environment):
        return [environment.home / ".toy"]

    def detect(self, tree, names):
        for name in names:
            head = tree.head(name).lstrip()
            if head.startswith(b'{"start"'):
                yield Transcript("toy", name, "lines")
            elif head.startswith(b"["):
                yield Transcript("toy", name, "document", side_files(tree, name))

    def read_lines(self, tree, transcript, state):
        return ToyReader(state, transcript.name)

    def read(self, tree, transcript, select=select_all):
        conversations = json.loads(tree.read(transcript.name))
        versions = {f"toy:{item['id']}": item["version"] for item in conversations if "version" in item}
        selection = select(versions)
        for conversation in conversations:
            session = f"toy:{conversation['id']}"
            if session in versions and session not in selection:
                continue
            yield SessionFound(
                session, title=conversation.get("title"), title_rank=conversation.get("rank", 2),
                updated_at=conversation.get("at"), pinned=conversation.get("pinned"),
                version=versions.get(session),
            )  # fmt: skip
            if "items" not in conversation:
                continue  # only fields of a conversation whose messages are in another file
            for item in conversation["items"]:
                yield from read_item(session, item, transcript.name)
            yield Original(session, "conversation.json", json.dumps(conversation).encode())


def lines(*items):
    """Return items as lines."""
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


def chain(*texts, first=0, after=None):
    """Return messages, each after the one before, with keys m0, m1, …"""
    items = []
    for number, text in enumerate(texts, first):
        items.append({"id": f"m{number}", "after": after, "text": text, "at": 1_700_000_000_000 + number * 1000})
        after = f"m{number}"
    return items
