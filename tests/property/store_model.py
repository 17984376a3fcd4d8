"""The plain model of a store in memory, with which test_store.py compares a store."""

from __future__ import annotations

import msgspec

from recollect.model.compaction import SUMMARY_LABEL
from recollect.model.message import ToolCallPart, ToolResultPart

LEASE = 1_000  # milliseconds, the unit of the clock; the rule `wait` can move the clock past it


class ModelMessage:
    """A message of the model."""

    def __init__(self, branch, position, draft, turn=None):
        self.branch, self.position, self.draft, self.turn = branch, position, draft, turn
        self.state = "completed"
        self.deleted = False
        self.abandoned_call = False
        self.metadata = {}
        self.versions = []
        self.is_edited = False

    @property
    def id(self):
        return f"{self.branch.number}.{self.position}"

    @property
    def key(self):
        return self.draft.key

    def replace(self, draft):
        self.versions.append(self.draft.parts)
        self.is_edited = True
        self.draft = msgspec.structs.replace(draft, key=self.key)


class ModelBranch:
    """A branch of the model: its parent, the position at which it leaves it, and its own messages."""

    def __init__(self, tree, owner, parent, fork_at):
        tree.append(self)
        self.number = len(tree)
        self.owner, self.parent, self.fork_at = owner, parent, fork_at
        self.messages = []
        self.open_turn = None
        self.compactions = []

    def inherit(self, branch):
        """Copy the compactions of a branch that are not undone and whose range is shared."""
        self.compactions = [ModelCompaction(old.round, old.low, old.high, old.summary) for old in branch.compactions
                            if not old.undone and old.high <= self.fork_at]  # fmt: skip

    def model_visible(self):
        """Return the model-visible history: the ids of messages, and a summary in place of each compacted range."""
        current = [item for item in self.compactions if not item.undone]
        outer = [
            a for a in current if not any(b.round > a.round and b.low <= a.low and a.high <= b.high for b in current)
        ]
        entries = []
        for message in self.path():
            cover = next((item for item in outer if item.low <= message.position <= item.high), None)
            if cover is not None and message.position == cover.low:
                entries.append(f"{SUMMARY_LABEL}\n{cover.summary}")
            if cover is None and not message.deleted:
                entries.append(message.id)
        return entries

    @property
    def last(self):
        return self.fork_at + len(self.messages)

    def path(self):
        """Return the messages from the first to the last of this branch."""
        if self.parent is None:
            return list(self.messages)
        return [message for message in self.parent.path() if message.position <= self.fork_at] + self.messages

    def ancestors(self):
        return [] if self.parent is None else [self.parent, *self.parent.ancestors()]

    def last_message(self):
        messages = self.path()
        return messages[-1] if messages else None

    def append_drafts(self, drafts, turn=None):
        """Append drafts to the branch, and return the messages."""
        first = self.last + 1
        messages = [ModelMessage(self, first + offset, draft, turn) for offset, draft in enumerate(drafts)]
        self.messages += messages
        for _, call, result in self.tool_calls():
            call.abandoned_call = call.abandoned_call and (result is None or call.branch is not self)
        return messages

    def tool_calls(self):
        """Join each result to the newest call with its id that has no result yet."""
        calls = []
        for message in self.path():
            part = message.draft.parts[0] if message.draft.parts else None
            if isinstance(part, ToolCallPart):
                calls.append([part.call_id, message, None])
            if isinstance(part, ToolResultPart):
                pending = [call for call in calls if call[0] == part.call_id and call[2] is None]
                if pending:
                    pending[-1][2] = message
        return calls


class ModelCompaction:
    """A compaction of the model."""

    def __init__(self, round, low, high, summary):
        self.round, self.low, self.high, self.summary = round, low, high, summary
        self.undone = False


class ModelTurn:
    """A turn of the model, and its handle in the store."""

    def __init__(self, session, branch, position):
        self.session, self.branch, self.position = session, branch, position
        self.status = "open"
        self.lease_end = 0
        self.handle = None
        self.streams = []

    def end(self, status):
        """End the turn: interrupt its streams, abandon its calls, and release the branch."""
        self.resume()
        self.status = status
        for _, call, result in self.branch.tool_calls():
            if status != "completed" and result is None and call.branch is self.branch and call.turn == self.position:
                call.abandoned_call = True
        for message, _ in self.streams:
            message.state = "interrupted" if message.state == "streaming" else message.state
        if self.branch.open_turn is self:
            self.branch.open_turn = None

    def resume(self):
        """Continue an interrupted turn: its calls are no longer abandoned."""
        for message in self.branch.messages:
            message.abandoned_call = message.abandoned_call and not (
                self.status == "interrupted" and message.turn == self.position
            )

    def can_continue(self):
        """Return whether the turn can take another step: it is open, or interrupted and the last turn of its branch."""
        if self.status == "interrupted" and any(turn.follows(self) for turn in self.session.turns):
            return False
        return self.status in ("open", "interrupted") and self.branch.open_turn in (None, self)

    def follows(self, other):
        return self.branch is other.branch and self.position > other.position


class ModelSession:
    """A session of the model."""

    def __init__(self, id, number, tree, parent=None, fork_at=0):
        self.id, self.number, self.tree = id, number, tree
        self.title = None
        self.deleted = None
        self.activity = 0
        self.was_restored = False
        self.keys = {}
        self.turns = []
        self.head = ModelBranch(tree, self, parent, fork_at)
        self.handles = [None, None]

    def branches(self):
        return [branch for branch in self.tree if branch.owner is self]

    def messages(self):
        return [message for message in self.head.path() if not message.deleted]

    def tool_calls(self):
        return self.head.tool_calls()

    def find_by_key(self, key):
        """Return the message that session.message(key=...) returns, or None."""
        paths = [self.head.path(), [message for branch in self.branches() for message in branch.path()]]
        for deleted in (False, True):
            for path in paths:
                matches = [message for message in path if message.key == key and message.deleted == deleted]
                if matches:
                    return max(matches, key=lambda message: (message.branch.number, message.position))
        return None

    def holds_key_of(self, message):
        """Return whether a live message shares a path of the tree with this one, and has its key."""
        paths = [branch.path() for branch in self.tree if branch.owner is not None]
        return any(
            message in path
            and any(other.key == message.key and not other.deleted and other is not message for other in path)
            for path in paths
        )
