"""The reference pages: which public names are on which page, and how each page begins."""

from __future__ import annotations

from typing import NamedTuple

FOLDER = "docs/reference/api"
MODULES = ("recollect", "recollect.errors", "recollect.types", "recollect.formats")
"""The modules that programs import from."""

INDEX_INTRODUCTION = """
These pages are the contract of the Python library: every public name, with its arguments, its results and its errors.
Start with the [overview](../library.md). [Stability](../stability.md) states which changes a new version may make.

Each page describes the synchronous class. The asynchronous class has the same methods, which you await; see
[Async](../library.md#async). The examples of a page run in order, as one program.
"""


class ReferencePage(NamedTuple):
    """A page: its file, title, content in one line, introduction with an example, and the names that it describes.

    The kind states how names are described. For `classes`, an entry is the noun of the methods, a colon and the class.
    """

    file: str
    title: str
    summary: str
    kind: str
    introduction: str
    entries: tuple[str, ...]


PAGES = (
    ReferencePage(
        "functions.md",
        "Functions",
        "open, copy and restore a database",
        "functions",
        """
With this page you can look up the functions of the module `recollect`, which open, copy and restore databases.
""",
        (
            "recollect.open",
            "recollect.open_async",
            "recollect.copy",
            "recollect.restore",
            "recollect.check_backup",
        ),
    ),
    ReferencePage(
        "store.md",
        "Store",
        "list, search, count, delete and restore the conversations of one owner",
        "classes",
        """
With this page you can look up the methods of a store, which [recollect.open()] returns.

```python
import recollect

store = recollect.open("conversations.db")
store.session("cli:default").append({"role": "user", "content": "Hello"})
[session.id for session in store.list_sessions()]    # -> ['cli:default']
```
""",
        ("store:Store",),
    ),
    ReferencePage(
        "session.md",
        "Session",
        "append, read, edit, compact and branch one conversation",
        "classes",
        """
With this page you can look up the methods of a session, which [store.session()] returns.

```python
import recollect

store = recollect.open("conversations.db")
session = store.session("cli:default")
session.message_count    # -> 0
```
""",
        ("session:Session",),
    ),
    ReferencePage(
        "groups.md",
        "Groups of methods",
        "maintenance, tool calls, branches, turns, compactions, snapshots and presence",
        "classes",
        """
With this page you can look up the methods that are grouped below a store and a session, such as
`store.maintenance.backup()`. Each group has a type for annotations.

```python
import recollect

store = recollect.open("conversations.db")
session = store.session("cli:default")
session.append({"role": "user", "content": "Hello"})
[branch.id for branch in session.branches.list()]    # -> [1]
```
""",
        (
            "store.maintenance:StoreMaintenance",
            "store.tools:StoreTools",
            "session.branches:SessionBranches",
            "session.turns:SessionTurns",
            "session.compactions:SessionCompactions",
            "session.snapshots:SessionSnapshots",
            "session.presence:SessionPresence",
            "session.tools:SessionTools",
        ),
    ),
    ReferencePage(
        "turn.md",
        "Turn and stream",
        "record a run of an agent, and an answer while it arrives",
        "classes",
        """
With this page you can look up the methods of a turn, which [session.turn()] returns, and of a stream, which
[turn.stream()] returns.

```python
import recollect

store = recollect.open("conversations.db")
session = store.session("cli:default")
with session.turn("What is 2 + 2?") as turn:
    turn.add({"role": "assistant", "content": "4"})
[message.role for message in session.messages()]    # -> ['user', 'assistant']
```
""",
        (
            "turn:Turn",
            "stream:Stream",
        ),
    ),
    ReferencePage(
        "records.md",
        "Records",
        "store state that is not a message",
        "classes",
        """
With this page you can look up the methods of `store.records` and `session.records`.

```python
import recollect

store = recollect.open("conversations.db")
session = store.session("cli:default")
session.records.put("cursor", "inbox", 17).value    # -> 17
```
""",
        ("records:Records",),
    ),
    ReferencePage(
        "watch.md",
        "Watch",
        "follow the changes that any process commits",
        "classes",
        """
With this page you can look up the iterator that [store.watch()] returns.

```python
import recollect

store = recollect.open("conversations.db")
with store.watch(timeout=5) as changes:
    store.session("cli:default").append({"role": "user", "content": "Hello"})
    change = next(iter(changes))

change.session    # -> 'cli:default'
```
""",
        ("watch:Watch",),
    ),
    ReferencePage(
        "formats.md",
        "recollect.formats",
        "convert messages without a store",
        "functions",
        """
With this page you can look up the functions that convert messages of providers without a store. [Formats] in the
overview describes the formats.

```python
import recollect

store = recollect.open("conversations.db")
formats = recollect.formats
formats.parse({"role": "user", "content": "Hi"})[0].parts[0].text    # -> 'Hi'
```
""",
        (
            "recollect.formats.parse",
            "recollect.formats.render",
            "recollect.formats.response",
        ),
    ),
    ReferencePage(
        "values.md",
        "Values",
        "messages, parts, sessions, turns, hits, and what else the methods return",
        "values",
        """
With this page you can look up the fields of the values that methods return. [Values and times] in the overview
describes what they have in common: they are immutable, and convert to JSON.

```python
import recollect

store = recollect.open("conversations.db")
session = store.session("cli:default")
session.append({"role": "user", "content": "Hello"})
session.message("1.1").text    # -> 'Hello'
```
""",
        (
            "Message",
            "Draft",
            "TextPart",
            "ReasoningPart",
            "ToolCallPart",
            "ToolResultPart",
            "AttachmentPart",
            "DataPart",
            "ToolCall",
            "Appended",
            "History",
            "Repair",
            "SessionInfo",
            "TurnInfo",
            "Branch",
            "Compaction",
            "SummaryMessage",
            "CompactionPolicy",
            "Snapshot",
            "Presence",
            "ArriveResult",
            "Record",
            "Page",
            "Hit",
            "Change",
        ),
    ),
    ReferencePage(
        "reports.md",
        "Reports",
        "statistics, checks, pruning, disk usage, backups and copies",
        "values",
        """
With this page you can look up the fields of the reports that statistics and maintenance return.

```python
import recollect

store = recollect.open("conversations.db")
store.session("cli:default").append({"role": "user", "content": "Hello"})
store.stats().messages    # -> 1
```
""",
        (
            "Stats",
            "Tally",
            "ToolStats",
            "PruneReport",
            "PrunedSession",
            "Findings",
            "Finding",
            "Space",
            "OptimizeReport",
            "Backup",
            "CopyReport",
            "Difference",
            "Owners",
        ),
    ),
    ReferencePage(
        "errors.md",
        "Errors",
        "every error, when it is raised, and the next step",
        "errors",
        """
With this page you can look up when an error is raised and what to do next. [Errors] in the overview describes what all
errors have in common.

```python
import recollect

store = recollect.open("conversations.db")
try:
    store.session("cli:nowhere", create=False)
except recollect.SessionNotFound as error:
    name = error.session

name    # -> 'cli:nowhere'
```
""",
        (
            "RecollectError",
            "NotFound",
            "SessionNotFound",
            "SessionInTrash",
            "MessageNotFound",
            "BranchNotFound",
            "TurnNotFound",
            "ToolCallNotFound",
            "ApprovalNotFound",
            "CompactionNotFound",
            "Conflict",
            "SessionExists",
            "SessionBusy",
            "SessionTakenOver",
            "SessionHasForks",
            "StaleRevision",
            "StaleRecord",
            "AmbiguousName",
            "KeyReused",
            "TurnExists",
            "FileExists",
            "TurnClosed",
            "ToolCallAnswered",
            "CompactionConflict",
            "ImportConflict",
            "CopyConflict",
            "InvalidValue",
            "UnknownFormat",
            "AmbiguousFormat",
            "InvalidConfig",
            "UnreadableFile",
            "StoreError",
            "StoreClosed",
            "StoreLocked",
            "StoreReadOnly",
            "StoreUnavailable",
            "DiskFull",
            "Corrupted",
            "IndexDamaged",
            "NotADatabase",
            "SchemaTooNew",
            "NetworkFileSystem",
            "NotSupported",
            "LimitReached",
            "ModelError",
            "ModelNotConfigured",
            "BotError",
            "BotRejected",
            "RateLimited",
            "DeliveryFailed",
            "NotConfirmed",
        ),
    ),
    ReferencePage(
        "types.md",
        "Types of arguments",
        "aliases and texts that arguments accept",
        "types",
        """
With this page you can look up the aliases in signatures. Annotate your functions with them.

```python
from recollect.types import MessageId


def shorten(id: MessageId) -> str:
    return str(id)


shorten("1.2")    # -> '1.2'
```
""",
        (
            "MessageId",
            "Messages",
            "Cursor",
            "Format",
            "RegisteredFormat",
            "TimeLike",
            "DurationLike",
            "Part",
            "FilterValues",
            "Counter",
            "Summarize",
            "CheckProgress",
            "NewSessionFields",
            "SessionChanges",
            "SessionEdits",
            "SessionUpdates",
            "SessionStatus",
            "Relation",
            "Order",
            "SnapshotKind",
            "EndStatus",
            "ResultStatus",
            "ChunkKind",
            "Period",
        ),
    ),
)
