"""The comparison of test_store.py with appends after any message, with changed fields, and with stale revisions."""

from __future__ import annotations

import itertools
from operator import attrgetter
from typing import Any

import pytest
import test_store
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from test_store import IDS, Comparison, keys, picks, sizes, texts

from recollect import errors
from recollect.model.message import Draft, TextPart

stale_flags = st.sampled_from([False, False, False, True])
stale_offsets = st.sampled_from([-1, 1, 5])


class CombinedComparison(Comparison):
    """Adds operations to the comparison."""

    @precondition(Comparison.has_sessions)
    @rule(
        number=picks, which=st.integers(0, 1), at=picks, plain=st.booleans(), texts=st.lists(texts, max_size=3),
        size=sizes, title=st.none() | texts, key=keys, stale=stale_flags,
    )  # fmt: skip
    def append_after(self, number, which, at, plain, texts, size, title, key, stale):
        """Append after any message, with a new title or without, at the current revision or at another one."""
        session = self.pick_session(number)
        handle = self.handle(session, which)
        branch_paths = [session.head.path()] if plain else [branch.path() for branch in session.branches()]
        messages = [None, *itertools.chain.from_iterable(branch_paths)]
        message = messages[at % len(messages)]
        after = 0 if message is None else message.position if plain else message.id
        drafts = [Draft(role="user", parts=(TextPart(text=text),), tokens=size) for text in texts]
        revision = self.store.get_session(session.id).revision
        update = None if title is None else {"title": title, "pinned": False}
        arguments = {"after": after, "update": update, "key": key, "expected": revision + stale}
        content = (tuple(texts), after, title)
        if key in session.keys:
            earlier_content, ids = session.keys[key]
            if earlier_content != content:
                with pytest.raises(errors.KeyReused):
                    handle.append(drafts, **arguments)
                return
            repetition = handle.append(drafts, **arguments)
            assert (repetition.ids, repetition.repeated) == (ids, True)
        elif stale:
            with pytest.raises(errors.StaleRevision):
                handle.append(drafts, **arguments)
            return
        else:
            before, branch_count = session.head.last_message(), len(session.tree)
            result = handle.append(drafts, **arguments)
            self.move_head(session, message, result.branch)
            assert not drafts or before is not message or len(session.tree) == branch_count
            messages = session.head.append_drafts(drafts)
            assert (result.ids, result.repeated) == ([entry.id for entry in messages], False)
            self.check_ids(session, messages)
            is_changed = bool(drafts) or title is not None or before is not message
            assert result.revision == revision + is_changed
            session.title = session.title if title is None else title
            if key is not None:
                session.keys[key] = (content, result.ids)
            if drafts or before is not message:
                self.touch(session)
        assert handle.info == self.store.get_session(session.id).info
        self.check_counts(handle, session)

    @precondition(Comparison.has_sessions)
    @rule(
        number=picks, at=picks, offset=stale_offsets,
        action=st.sampled_from(["rewind", "branches.switch", "fork", "delete_messages", "restore_messages"]),
    )  # fmt: skip
    def change_at_a_stale_revision(self, number, at, action, offset):
        session = self.pick_session(number)
        handle = self.handle(session, 0)
        revision = self.store.get_session(session.id).revision
        if revision + offset < 0:
            return
        argument: Any = 1 + at % 12 if action == "branches.switch" else at % (session.head.last + 2)
        if action.endswith("_messages"):
            argument = [argument]
        with pytest.raises(errors.StaleRevision) as error:
            attrgetter(action)(handle)(argument, expected=revision + offset)
        assert error.value.fields == {"session": session.id, "revision": revision, "expected": revision + offset}

    @rule(
        id=st.sampled_from(IDS), offset=stale_offsets,
        action=st.sampled_from(["delete_session", "restore_session", "erase_session"]),
    )  # fmt: skip
    def change_a_session_at_a_stale_revision(self, id, action, offset):
        session, in_trash = self.find_live(id), self.find_deleted(id)
        expected_error = errors.StaleRevision
        if action == "restore_session" and session is not None and in_trash is not None:
            expected_error = errors.SessionExists
        if session is None and (in_trash is None or action == "delete_session"):
            expected_error = errors.SessionNotFound
        sessions = self.store.list_sessions(200, deleted=session is None, archived=None, delegates=None)
        revision = next((item.revision for item in sessions if item.id == id), 1)
        if revision + offset < 0:
            return
        with pytest.raises(expected_error):
            getattr(self.store, action)(id, expected=revision + offset)


TestCombinedComparison = CombinedComparison.TestCase
TestCombinedComparison.settings = test_store.TestComparison.settings
