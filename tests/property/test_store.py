"""A store returns the same as a plain model in memory, after any sequence of operations.

The clock changes only in a rule, so that many operations happen within one millisecond, and a failure can be
reproduced.
"""

from __future__ import annotations

import functools
import itertools
import os
import pathlib
import sys
import tempfile

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import recollect
from recollect import errors
from recollect.engine.process import holder, is_gone
from recollect.model.message import Draft, TextPart, ToolCallPart, ToolResultPart
from recollect.storage.operation import Scope

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from store_model import LEASE, ModelBranch, ModelCompaction, ModelSession, ModelTurn

IDS = ("a", "b", "c", "d", "e")

texts = st.sampled_from(["one", "two", "three"])
sizes = st.integers(0, 50)
picks = st.integers(0, 1_000)
keys = st.sampled_from([None, None, None, "k1", "k2"])
calls = st.sampled_from(["x", "y"])
MESSAGE_KEYS = ("m1", "m2", "m3")
message_keys = st.sampled_from(MESSAGE_KEYS)


class Comparison(RuleBasedStateMachine):
    """Applies each operation to the store and to the model, and compares them."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.now = 1_763_287_200_000
        self.holder = holder()
        self.count = itertools.count(1)
        self.sessions = []
        self.fingerprints = {}
        self.message_ids = {}
        self.store = self.open_store()

    def open_store(self):
        store = recollect.open(os.path.join(self.folder.name, "sessions.db"))
        store._scope = lambda: Scope("", self.holder, self.now, is_gone, store._engine.search_dialect)
        return store

    def teardown(self):
        problems = self.store.maintenance.check(deep=False).problems
        self.store.close()
        self.folder.cleanup()
        assert problems == ()

    # Helpers of the rules.

    def live_sessions(self):
        return [session for session in self.sessions if session.deleted is None]

    def find_live(self, id):
        return next((session for session in self.live_sessions() if session.id == id), None)

    def find_deleted(self, id):
        """Return the session with this id that was deleted last."""
        sessions = [session for session in self.sessions if session.id == id and session.deleted is not None]
        return max(sessions, key=lambda session: session.deleted, default=None)

    def pick_session(self, number):
        sessions = self.live_sessions()
        return sessions[number % len(sessions)]

    def handle(self, session, which):
        """Return one of the two handles on a session; a write through one does not refresh the other."""
        if session.handles[which] is None:
            session.handles[which] = self.store.get_session(session.id)
        return session.handles[which]

    def touch(self, session):
        session.activity = next(self.count)
        session.was_restored = False

    def check_counts(self, handle, model):
        """Check that a handle has the counts of the model after an operation."""
        assert handle.message_count == len(model.messages())
        assert handle.token_count == sum(message.draft.tokens for message in model.messages())

    def check_ids(self, session, messages):
        """Check that no message id of a tree is used twice."""
        for message in messages:
            key = (id(session.tree), message.id)
            assert key not in self.message_ids
            self.message_ids[key] = session.tree

    def recover(self, session):
        """Interrupt the turns whose lease has expired."""
        for turn in session.turns:
            if turn.branch.open_turn is turn and turn.lease_end <= self.now:
                turn.end("interrupted")

    def has_sessions(self, count=1):
        return len(self.live_sessions()) >= count

    # Rules.

    @initialize()
    def begin(self):
        self.make("a")

    @rule(id=st.sampled_from(IDS))
    def make(self, id):
        if self.find_live(id) is not None:
            with pytest.raises(errors.SessionExists):
                self.store.session(id, exist_ok=False)
            return
        self.store.session(id, exist_ok=False)
        self.sessions.append(ModelSession(id, next(self.count), []))
        self.touch(self.sessions[-1])

    @rule(id=st.sampled_from(IDS))
    def open_or_create(self, id):
        self.store.session(id)
        session = self.find_live(id)
        if session is None:
            session = ModelSession(id, next(self.count), [])
            self.sessions.append(session)
            self.touch(session)
        self.recover(session)

    @precondition(has_sessions)
    @rule(number=picks, which=st.integers(0, 1), text=texts, count=st.integers(1, 3), size=sizes, key=keys)
    def append(self, number, which, text, count, size, key):
        session = self.pick_session(number)
        handle = self.handle(session, which)
        drafts = [Draft(role="user", parts=(TextPart(text=text),), tokens=size) for _ in range(count)]
        if key in session.keys:
            content, ids = session.keys[key]
            if content != (text, count):
                with pytest.raises(errors.KeyReused):
                    handle.append(drafts, key=key)
                return
            repetition = handle.append(drafts, key=key)
            assert (repetition.ids, repetition.repeated) == (ids, True)
            self.check_counts(handle, session)
            return
        messages = session.head.append_drafts(drafts)
        result = handle.append(drafts, key=key)
        assert (result.ids, result.repeated) == ([message.id for message in messages], False)
        if key is not None:
            session.keys[key] = ((text, count), result.ids)
        self.check_ids(session, messages)
        self.touch(session)
        self.check_counts(handle, session)

    @precondition(has_sessions)
    @rule(number=picks, which=st.integers(0, 1), size=sizes)
    def append_at_a_revision(self, number, which, size):
        session = self.pick_session(number)
        handle = self.handle(session, which)
        draft = Draft(role="user", parts=(TextPart(text="expected"),), tokens=size)
        if handle.revision != self.store.get_session(session.id).revision:
            with pytest.raises(errors.StaleRevision):
                handle.append(draft, expected=handle.revision)
            return
        messages = session.head.append_drafts([draft])
        assert handle.append(draft, expected=handle.revision).ids == [messages[0].id]
        self.check_ids(session, messages)
        self.touch(session)

    @precondition(has_sessions)
    @rule(number=picks, which=st.integers(0, 1), take_over=st.booleans(), size=sizes)
    def open_turn(self, number, which, take_over, size):
        session = self.pick_session(number)
        handle = self.handle(session, which)
        draft = Draft(role="user", parts=(TextPart(text="q"),), tokens=size)
        previous = session.head.open_turn
        if previous is not None and previous.lease_end > self.now and not take_over:
            with pytest.raises(errors.SessionBusy):
                handle.turn(draft, lease=LEASE / 1_000)
            return
        if previous is not None:
            previous.end("interrupted")
        turn = ModelTurn(session, session.head, session.head.last + 1)
        turn.handle = handle.turn(draft, lease=LEASE / 1_000, take_over=take_over)
        turn.lease_end = self.now + LEASE
        messages = session.head.append_drafts([draft], turn.position)
        assert turn.handle.id == messages[0].id
        session.head.open_turn = turn
        session.turns.append(turn)
        self.check_ids(session, messages)
        self.touch(session)
        self.check_counts(handle, session)

    def turns(self):
        """Return the turns with a handle, which a reopened store does not have."""
        return [turn for session in self.sessions for turn in session.turns if turn.handle is not None]

    @precondition(turns)
    @rule(number=picks, size=sizes, call=calls | st.none())
    def add_to_a_turn(self, number, size, call):
        turn = self.turns()[number % len(self.turns())]
        draft = Draft(role="assistant", parts=(TextPart(text="r"),), tokens=size)
        if call is not None:
            draft = Draft(role="assistant", parts=(ToolCallPart(call_id=call, tool="t", arguments={}),), tokens=size)
        if not turn.can_continue() or turn.session.deleted is not None:
            with pytest.raises((errors.TurnClosed, errors.NotFound)):
                turn.handle.add(draft)
            return
        messages = turn.branch.append_drafts([draft], turn.position)
        assert turn.handle.add(draft).ids == [messages[0].id]
        self.renew(turn)
        self.check_ids(turn.session, messages)
        self.touch(turn.session)

    def renew(self, turn):
        """Renew the lease of a turn, which resumes it if it was interrupted."""
        turn.resume()
        turn.status, turn.branch.open_turn, turn.lease_end = "open", turn, self.now + LEASE
        self.check_counts(turn.handle.session, turn.session)

    @precondition(turns)
    @rule(number=picks)
    def open_an_answer(self, number):
        turn = self.turns()[number % len(self.turns())]
        if not turn.can_continue() or turn.session.deleted is not None:
            with pytest.raises((errors.TurnClosed, errors.NotFound)):
                turn.handle.stream()
            return
        messages = turn.branch.append_drafts([Draft(role="assistant", tokens=0)], turn.position)
        stream = turn.handle.stream()
        assert stream.id == messages[0].id
        messages[0].state = "streaming"
        turn.streams.append((messages[0], stream))
        self.renew(turn)
        self.check_ids(turn.session, messages)
        self.touch(turn.session)

    def streams(self):
        return [(turn, *stream) for turn in self.turns() for stream in turn.streams]

    @precondition(streams)
    @rule(number=picks, size=sizes, close=st.booleans())
    def write_an_answer(self, number, size, close):
        turn, message, stream = self.streams()[number % len(self.streams())]
        if message.state == "completed":
            with pytest.raises(errors.InvalidValue):
                stream.write("chunk ")
            return
        stream.write("chunk ")
        text = (message.draft.parts[0].text if message.draft.parts else "") + "chunk "
        store_text = stream.flush
        draft = Draft(role="assistant", parts=(TextPart(text=text),), tokens=0)
        if close:
            draft = Draft(role="assistant", parts=(TextPart(text="closed"),), tokens=size)
            store_text = functools.partial(stream.close, draft)
        if not turn.can_continue() or turn.session.deleted is not None:
            with pytest.raises((errors.TurnClosed, errors.NotFound)):
                store_text()
            turn.streams = [other for other in turn.streams if other[1] is not stream]
            return
        store_text()
        message.draft, message.state = draft, "completed" if close else "streaming"
        self.renew(turn)

    @precondition(turns)
    @rule(number=picks, how=st.sampled_from(["complete", "fail", "cancel"]))
    def end_a_turn(self, number, how):
        turn = self.turns()[number % len(self.turns())]
        end = getattr(turn.handle, how)
        if not turn.can_continue() or turn.session.deleted is not None:
            with pytest.raises((errors.TurnClosed, errors.NotFound)):
                end()
            return
        turn.end({"complete": "completed", "fail": "failed", "cancel": "cancelled"}[how])
        assert end().status == turn.status
        self.check_counts(turn.handle.session, turn.session)

    @precondition(has_sessions)
    @rule(number=picks, which=st.integers(0, 1), call=calls, text=texts)
    def record_a_result(self, number, which, call, text):
        session = self.pick_session(number)
        handle = self.handle(session, which)
        matches = [entry for entry in session.tool_calls() if entry[0] == call]
        if not matches:
            with pytest.raises(errors.ToolCallNotFound):
                handle.tools.record_result(call, text)
        elif all(result is not None for _, _, result in matches):
            same = [result for _, _, result in matches if result.draft.parts[0].text == text]
            if same:
                assert handle.tools.record_result(call, text).id == same[-1].id
                return
            with pytest.raises(errors.ToolCallAnswered):
                handle.tools.record_result(call, text)
        else:
            message = handle.tools.record_result(call, text)
            draft = Draft(role="tool", parts=message.parts, tokens=message.tokens)
            messages = session.head.append_drafts([draft], session.head.open_turn and session.head.open_turn.position)
            assert message.id == messages[0].id
            self.check_ids(session, messages)
            self.touch(session)

    @precondition(has_sessions)
    @rule(number=picks, at=picks, id=st.sampled_from(IDS))
    def fork(self, number, at, id):
        session = self.pick_session(number)
        messages = [None, *(message for branch in session.branches() for message in branch.path())]
        message = messages[at % len(messages)]
        message_id = 0 if message is None else message.id
        if self.find_live(id) is not None:
            with pytest.raises(errors.SessionExists):
                self.handle(session, 0).fork(message_id, id=id)
            return
        handle = self.handle(session, 0).fork(message_id, id=id)
        parent, fork_at = (None, 0) if message is None else (message.branch, message.position)
        fork = ModelSession(id, next(self.count), session.tree, parent, fork_at)
        if message is not None:
            fork.head.inherit(session.head if message in session.head.path() else message.branch)
        fork.title = session.title
        self.sessions.append(fork)
        self.touch(fork)
        assert (handle.branch, handle.parent) == (fork.head.number, session.id)
        self.check_counts(handle, fork)

    @precondition(has_sessions)
    @rule(number=picks, which=st.integers(0, 1), at=picks, plain=st.booleans())
    def rewind(self, number, which, at, plain):
        session = self.pick_session(number)
        handle = self.handle(session, which)
        all_messages = [message for branch in session.branches() for message in branch.path()]
        messages = [None, *(session.head.path() if plain else all_messages)]
        message = messages[at % len(messages)]
        expected = self.store.get_session(session.id).revision
        handle.rewind(0 if message is None else message.position if plain else message.id, expected=expected)
        if session.head.last_message() is not message:
            self.touch(session)
        self.move_head(session, message, handle.branch)
        self.check_counts(handle, session)

    def move_head(self, session, message, number):
        """Make a branch that ends with a message the head: the one with this number, or a new one."""
        before = session.head
        if before.last_message() is not message:
            if number <= len(session.tree):
                session.head = session.tree[number - 1]
                assert session.head.owner is session
            else:
                parent, fork_at = (None, 0) if message is None else (message.branch, message.position)
                session.head = ModelBranch(session.tree, session, parent, fork_at)
                if message is not None:
                    session.head.inherit(before if message in before.path() else message.branch)
        assert (session.head.number, session.head.last_message()) == (number, message)

    @precondition(has_sessions)
    @rule(number=picks, which=st.integers(0, 1), to=st.integers(1, 12))
    def switch(self, number, which, to):
        session = self.pick_session(number)
        handle = self.handle(session, which)
        branch = next((branch for branch in session.branches() if branch.number == to), None)
        if branch is None:
            with pytest.raises(errors.BranchNotFound):
                handle.branches.switch(to)
            return
        handle.branches.switch(to)
        if branch is not session.head:
            self.touch(session)
        session.head = branch
        self.check_counts(handle, session)

    @precondition(has_sessions)
    @rule(number=picks, which=st.integers(0, 1), at=picks, deleted=st.booleans())
    def delete_or_restore_a_message(self, number, which, at, deleted):
        session = self.pick_session(number)
        handle = self.handle(session, which)
        messages = [message for branch in session.branches() for message in branch.path()]
        if not messages:
            with pytest.raises(errors.MessageNotFound):
                handle.delete_messages(["1.1"])
            return
        expected = messages[at % len(messages)]
        change = handle.delete_messages if deleted else handle.restore_messages
        if expected.deleted and not deleted and expected.key is not None and session.holds_key_of(expected):
            with pytest.raises(errors.KeyReused):
                change([expected.id])
            return
        assert change([expected.id]) == ([expected.id] if expected.deleted != deleted else [])
        expected.deleted = deleted
        self.check_counts(handle, session)

    @precondition(has_sessions)
    @rule(number=picks, which=st.integers(0, 1), batch=st.dictionaries(message_keys, texts, min_size=1), size=sizes)
    def append_with_keys(self, number, which, batch, size):
        session = self.pick_session(number)
        handle = self.handle(session, which)
        drafts = [Draft(role="user", parts=(TextPart(text=text),), tokens=size, key=key) for key, text in batch.items()]
        holders = {message.key: message for message in session.messages() if message.key is not None}
        if any(
            draft.key in holders and not holders[draft.key].is_edited and holders[draft.key].draft.parts != draft.parts
            for draft in drafts
        ):
            with pytest.raises(errors.KeyReused):
                handle.append(drafts)
            return
        messages = session.head.append_drafts([draft for draft in drafts if draft.key not in holders])
        holders |= {message.key: message for message in messages}
        result = handle.append(drafts)
        assert result.ids == [holders[draft.key].id for draft in drafts]
        assert result.repeated == (not messages)
        self.check_ids(session, messages)
        if messages:
            self.touch(session)
            self.check_counts(handle, session)

    @precondition(has_sessions)
    @rule(number=picks, which=st.integers(0, 1), n=st.integers(1, 3))
    def pop(self, number, which, n):
        session = self.pick_session(number)
        handle = self.handle(session, which)
        expected = session.messages()[-n:]
        assert [message.id for message in handle.pop(n)] == [message.id for message in expected]
        for message in expected:
            message.deleted = True
        self.check_counts(handle, session)

    @precondition(has_sessions)
    @rule(number=picks, which=st.integers(0, 1), at=st.lists(picks, max_size=4))
    def delete_messages(self, number, which, at):
        session = self.pick_session(number)
        handle = self.handle(session, which)
        messages = [message for branch in session.branches() for message in branch.path()]
        selection = list(dict.fromkeys(messages[index % len(messages)] for index in at if messages))
        expected = [message for message in selection if not message.deleted]
        assert handle.delete_messages([message.id for message in selection]) == [message.id for message in expected]
        for message in expected:
            message.deleted = True
        self.check_counts(handle, session)

    @precondition(has_sessions)
    @rule(number=picks, which=st.integers(0, 1), at=picks, text=texts, size=sizes, erase=st.integers(0, 4))
    def replace_a_message(self, number, which, at, text, size, erase):
        session = self.pick_session(number)
        handle = self.handle(session, which)
        streaming = {message for _, message, _ in self.streams()}
        messages = [
            message
            for branch in session.branches()
            for message in branch.path()
            if message.state == "completed" and message not in streaming
            and not any(isinstance(part, ToolCallPart | ToolResultPart) for part in message.draft.parts)
        ]  # fmt: skip
        if not messages:
            return
        message = messages[at % len(messages)]
        draft = Draft(role="assistant", parts=(TextPart(text=f"{text} again"),), tokens=size)
        is_same = (message.draft.role, message.draft.parts, message.draft.tokens) == (draft.role, draft.parts, size)
        assert handle.replace_message(message.id, draft, erase=not erase).parts == draft.parts
        if not erase:
            message.replace(draft)
            message.versions = []
        elif not is_same:
            message.replace(draft)
        self.check_counts(handle, session)

    @precondition(has_sessions)
    @rule(number=picks, which=st.integers(0, 1), at=picks, name=calls, value=st.none() | st.booleans() | picks)
    def mark_a_message(self, number, which, at, name, value):
        session = self.pick_session(number)
        handle = self.handle(session, which)
        messages = [message for branch in session.branches() for message in branch.path()]
        if messages:
            message = messages[at % len(messages)]
            message.metadata = {
                key: item for key, item in {**message.metadata, name: value}.items() if item is not None
            }
            assert handle.mark_message(message.id, {name: value}).metadata == (message.metadata or None)
            self.check_counts(handle, session)

    @precondition(has_sessions)
    @rule(number=picks, which=st.integers(0, 1), title=texts | st.none())
    def rename(self, number, which, title):
        session = self.pick_session(number)
        handle = self.handle(session, which)
        session.title = title
        assert handle.update(title=title).title == title
        self.check_counts(handle, session)

    @precondition(has_sessions)
    @rule(number=picks, which=st.integers(0, 1), at=picks)
    def compact(self, number, which, at):
        session = self.pick_session(number)
        handle = self.handle(session, which)
        branch = session.head
        if not branch.path():
            with pytest.raises(errors.InvalidValue):
                handle.compact(summary="nothing", keep_turns=0)
            return
        before = branch.path()[at % len(branch.path())]
        visible = [entry for entry in branch.model_visible() if isinstance(entry, str) and "." in entry]
        if not any(message.id in visible and message.position < before.position for message in branch.path()):
            with pytest.raises(errors.InvalidValue):
                handle.compact(before=before.id, summary="nothing")
            return
        summary = f"summary {next(self.count)}"
        try:
            compaction = handle.compact(before=before.id, summary=summary)
        except errors.InvalidValue:  # the range has only calls whose results come after it
            assert any(isinstance(part, ToolCallPart) for message in branch.path() for part in message.draft.parts)
            return
        assert compaction.to_position < before.position
        assert compaction.round == max((item.round for item in branch.compactions), default=0) + 1
        branch.compactions.append(
            ModelCompaction(compaction.round, compaction.from_position, compaction.to_position, summary)
        )
        self.check_counts(handle, session)

    @precondition(has_sessions)
    @rule(number=picks, which=st.integers(0, 1), round=st.none() | st.integers(1, 3))
    def undo_a_compaction(self, number, which, round):
        session = self.pick_session(number)
        handle = self.handle(session, which)
        compactions = session.head.compactions
        matches = [item for item in compactions if (not item.undone if round is None else item.round == round)]
        if not matches:
            with pytest.raises(errors.CompactionNotFound):
                handle.compactions.undo(round)
            return
        assert handle.compactions.undo(round).round == matches[-1].round
        matches[-1].undone = True

    @rule(id=st.sampled_from(IDS))
    def trash(self, id):
        session = self.find_live(id)
        if session is None:
            with pytest.raises(errors.SessionNotFound):
                self.store.delete_session(id)
            return
        self.store.delete_session(id)
        session.deleted = (self.now, session.number)

    @rule(id=st.sampled_from(IDS))
    def restore(self, id):
        session, live = self.find_deleted(id), self.find_live(id)
        if session is None and live is None:
            with pytest.raises(errors.SessionNotFound):
                self.store.restore_session(id)
        elif session is None:
            assert self.store.restore_session(id).title == live.title
        elif live is not None:
            with pytest.raises(errors.SessionExists):
                self.store.restore_session(id)
        else:
            session.deleted = None
            session.was_restored = True
            self.check_counts(self.store.restore_session(id), session)

    @rule(id=st.sampled_from(IDS), forks=st.sampled_from(["refuse", "keep", "erase"]))
    def erase(self, id, forks):
        session = self.find_live(id) or self.find_deleted(id)
        if session is None:
            with pytest.raises(errors.SessionNotFound):
                self.store.erase_session(id, forks=forks)
            return
        dependent = [
            other
            for other in self.sessions
            if other is not session
            and any(parent.owner is session for branch in other.branches() for parent in branch.ancestors())
        ]
        if dependent and forks == "refuse":
            with pytest.raises(errors.SessionHasForks) as error:
                self.store.erase_session(id)
            assert error.value.forks == tuple(other.id for other in dependent)  # pyright: ignore[reportAttributeAccessIssue]
            return
        sessions = [session, *(dependent if forks == "erase" else [])]
        ids = self.store.erase_session(id, forks=forks)
        assert sorted(ids) == sorted(other.id for other in sessions)
        for other in sessions:
            self.sessions.remove(other)
            for branch in other.branches():
                branch.owner = None
                branch.compactions = []

    @rule(step=st.sampled_from([0, 1, 1, 5, LEASE, 100_000]))
    def wait(self, step):
        self.now += step

    @rule()
    def reopen(self):
        self.store.close()
        self.store = self.open_store()
        for session in self.sessions:
            session.handles = [None, None]
            for turn in session.turns:
                turn.handle = None

    # Invariants, checked after each rule.

    @invariant()
    def the_lists_are_equal(self):
        self.check_activity_order()
        by_creation = sorted(self.live_sessions(), key=lambda session: session.number, reverse=True)
        self.check_order(self.store.list_sessions(order="created"), by_creation, "created_at")
        trash = sorted(
            (session for session in self.sessions if session.deleted), key=lambda session: session.deleted, reverse=True
        )
        self.check_order(self.store.list_sessions(deleted=True), trash, "deleted_at")

    def check_order(self, sessions, expected, time):
        """Check that the newest session is first, also within a millisecond."""
        assert [session.id for session in sessions] == [session.id for session in expected]

    def check_activity_order(self):
        """Check the order by activity, also within a millisecond. A restored session keeps its previous time."""
        sessions = self.store.list_sessions()
        assert sorted(session.id for session in sessions) == sorted(session.id for session in self.live_sessions())
        for newer, older in itertools.combinations(sessions, 2):
            first, second = self.find_live(newer.id), self.find_live(older.id)
            assert first.was_restored or second.was_restored or first.activity > second.activity

    @invariant()
    def every_session_is_equal(self):
        for session in self.store.list_sessions():
            model = self.find_live(session.id)
            messages = session.messages(deleted=True)
            expected = model.head.path()
            assert [message.id for message in messages] == [entry.id for entry in expected]
            assert [message.parts for message in messages] == [entry.draft.parts for entry in expected]
            assert [message.deleted_at is not None for message in messages] == [entry.deleted for entry in expected]
            assert [message.turn for message in messages] == [entry.turn for entry in expected]
            assert [message.state for message in messages] == [entry.state for entry in expected]
            assert [message.metadata or {} for message in messages] == [entry.metadata for entry in expected]
            self.check_keys_and_versions(session, model, expected)
            view = session.messages(active=True)
            assert [
                message.text if "compaction" in (message.metadata or {}) else message.id for message in view
            ] == model.head.model_visible()
            assert session.active_tokens() == sum(message.tokens for message in view)
            assert len(session.history()) == len(view)
            assert (session.title, session.branch) == (model.title, model.head.number)
            self.check_counts(session, model)
            self.check_branches(session, model)
            self.check_revision(session, model, messages)

    def check_keys_and_versions(self, session, model, expected):
        for key in MESSAGE_KEYS:
            message = model.find_by_key(key)
            if message is None:
                with pytest.raises(errors.MessageNotFound):
                    session.message(key=key)
            else:
                assert session.message(key=key).id == message.id
        for message in expected:
            if message.versions:
                assert [old.parts for old in session.message_versions(message.id)] == message.versions

    def check_branches(self, session, model):
        branches = [branch for branch in model.branches() if branch.messages or branch is model.head]
        assert [(b.id, b.parent, b.fork_at, b.last, b.current) for b in session.branches.list()] == [
            (b.number, b.parent and b.parent.number, b.fork_at, b.last, b is model.head) for b in branches
        ]
        assert [(c.call_id, c.message, c.status, c.result_message) for c in session.tools.list()] == [
            (
                call_id,
                call.id,
                "success" if result else "cancelled" if call.abandoned_call else "pending",
                result and result.id,
            )
            for call_id, call, result in model.tool_calls()
        ]
        status = {(turn.branch.number, turn.position): turn.status for turn in model.turns}
        for turn in session.turns.list():
            assert turn.status == status.get((turn.branch, turn.position), turn.status)

    def check_revision(self, session, model, messages):
        """Check that the revision increases with every change that a reader can see."""
        own = {branch.number for branch in model.branches()}
        ids = tuple((message.id, message.deleted_at) for message in messages)
        # A stream in a shared message changes only the revision of the session that writes it.
        texts = tuple((message.state, message.text) for message in messages if message.branch in own)
        fingerprint = (session.title, session.branch, ids, texts, tuple(model.head.model_visible()))
        revision, before = self.fingerprints.get(model.number, (-1, None))
        assert session.revision >= revision
        assert session.revision > revision or fingerprint == before
        self.fingerprints[model.number] = (session.revision, fingerprint)


TestComparison = Comparison.TestCase
TestComparison.settings = settings(
    max_examples=200 if "RECOLLECT_TEST_LONG" in os.environ else 80,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
