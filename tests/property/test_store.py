"""Whatever is done to a store, in whatever order, it says the same as a plain model in memory.

Time stands still unless a rule moves it, so that the many things done within one millisecond are tried, and a failure
can be repeated.
"""

from __future__ import annotations

import functools
import itertools
import os
import tempfile

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import recollect
from recollect import errors
from recollect.engine.process import gone, holder
from recollect.model.compaction import LABEL
from recollect.model.message import Draft
from recollect.model.part import TextPart, ToolCallPart, ToolResultPart
from recollect.op import Scope

IDS = ("a", "b", "c", "d", "e")
LEASE = 1_000

texts = st.sampled_from(["one", "two", "three"])
sizes = st.integers(0, 50)
picks = st.integers(0, 1_000)
keys = st.sampled_from([None, None, None, "k1", "k2"])
calls = st.sampled_from(["x", "y"])


class Said:
    """A message of the model."""

    def __init__(self, branch, position, draft, turn=None):
        self.branch, self.position, self.draft, self.turn = branch, position, draft, turn
        self.state = "completed"
        self.deleted = False
        self.given_up = False

    @property
    def id(self):
        return f"{self.branch.number}.{self.position}"


class Path:
    """A branch of the model: where it leaves its parent, and what was said on it."""

    def __init__(self, tree, owner, parent, fork_at):
        tree.append(self)
        self.number = len(tree)
        self.owner, self.parent, self.fork_at = owner, parent, fork_at
        self.said = []
        self.open = None
        self.compactions = []

    def inherit(self, path):
        """Take over the compactions in force whose whole span is shared."""
        self.compactions = [Shrunk(old.round, old.low, old.high, old.summary) for old in path.compactions
                            if not old.undone and old.high <= self.fork_at]  # fmt: skip

    def view(self):
        """What is sent on: a summary in the place of what it replaced."""
        force = [item for item in self.compactions if not item.undone]
        outer = [a for a in force if not any(b.round > a.round and b.low <= a.low and a.high <= b.high for b in force)]
        found = []
        for said in self.all():
            cover = next((item for item in outer if item.low <= said.position <= item.high), None)
            if cover is not None and said.position == cover.low:
                found.append(f"{LABEL}\n{cover.summary}")
            if cover is None and not said.deleted:
                found.append(said.id)
        return found

    @property
    def last(self):
        return self.fork_at + len(self.said)

    def all(self):
        """Everything on the way to the end of this branch."""
        if self.parent is None:
            return list(self.said)
        return [said for said in self.parent.all() if said.position <= self.fork_at] + self.said

    def ancestors(self):
        return [] if self.parent is None else [self.parent, *self.parent.ancestors()]

    def tip(self):
        said = self.all()
        return said[-1] if said else None

    def say(self, drafts, turn=None):
        first = self.last + 1
        made = [Said(self, first + offset, draft, turn) for offset, draft in enumerate(drafts)]
        self.said += made
        for _, call, result in self.tool_calls():
            call.given_up = call.given_up and (result is None or call.branch is not self)
        return made

    def tool_calls(self):
        """Join results to calls: each result to the newest call of its id that is still open."""
        found = []
        for said in self.all():
            part = said.draft.parts[0] if said.draft.parts else None
            if isinstance(part, ToolCallPart):
                found.append([part.call_id, said, None])
            if isinstance(part, ToolResultPart):
                waiting = [call for call in found if call[0] == part.call_id and call[2] is None]
                if waiting:
                    waiting[-1][2] = said
        return found


class Shrunk:
    """A compaction of the model."""

    def __init__(self, round, low, high, summary):
        self.round, self.low, self.high, self.summary = round, low, high, summary
        self.undone = False


class Run:
    """A turn of the model, and the handle on it."""

    def __init__(self, talk, branch, position):
        self.talk, self.branch, self.position = talk, branch, position
        self.status = "open"
        self.until = 0
        self.handle = None
        self.streams = []

    def ended(self, status):
        """End it; what still streams in it is cut off, its calls are given up, and the branch is free."""
        self.resumed()
        self.status = status
        for _, call, result in self.branch.tool_calls():
            if status != "completed" and result is None and call.branch is self.branch and call.turn == self.position:
                call.given_up = True
        for said, _ in self.streams:
            said.state = "interrupted" if said.state == "streaming" else said.state
        if self.branch.open is self:
            self.branch.open = None

    def resumed(self):
        """Go on, with the calls that were given up while it seemed to be interrupted."""
        for said in self.branch.said:
            said.given_up = said.given_up and not (self.status == "interrupted" and said.turn == self.position)

    def goes_on(self):
        """Whether it takes another step: it is open, or was interrupted and no other turn began since."""
        if self.status == "interrupted" and any(run.follows(self) for run in self.talk.runs):
            return False
        return self.status in ("open", "interrupted") and self.branch.open in (None, self)

    def follows(self, other):
        return self.branch is other.branch and self.position > other.position


class Talk:
    """A session of the model."""

    def __init__(self, id, number, tree, parent=None, fork_at=0):
        self.id, self.number, self.tree = id, number, tree
        self.title = None
        self.deleted = None
        self.active = 0
        self.came_back = False
        self.keys = {}
        self.runs = []
        self.head = Path(tree, self, parent, fork_at)
        self.handles = [None, None]

    def branches(self):
        return [branch for branch in self.tree if branch.owner is self]

    def messages(self):
        return [said for said in self.head.all() if not said.deleted]

    def tool_calls(self):
        return self.head.tool_calls()


class Comparison(RuleBasedStateMachine):
    """Does everything to the store and to the model."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.now = 1_763_287_200_000
        self.holder = holder()
        self.count = itertools.count(1)
        self.talks = []
        self.seen = {}
        self.given_out = {}
        self.store = self.opened()

    def opened(self):
        store = recollect.open(os.path.join(self.folder.name, "talks.db"))
        store.scope = lambda: Scope("", self.holder, self.now, gone)
        return store

    def teardown(self):
        problems = self.store.check(deep=False).problems
        self.store.close()
        self.folder.cleanup()
        assert problems == ()

    # What the rules work on.

    def living(self):
        return [talk for talk in self.talks if talk.deleted is None]

    def named(self, id):
        return next((talk for talk in self.living() if talk.id == id), None)

    def trashed(self, id):
        found = [talk for talk in self.talks if talk.id == id and talk.deleted is not None]
        return max(found, key=lambda talk: talk.deleted, default=None)

    def pick(self, number):
        living = self.living()
        return living[number % len(living)]

    def handle(self, talk, which):
        """One of the two handles on a session; they know nothing of one another."""
        if talk.handles[which] is None:
            talk.handles[which] = self.store.get_session(talk.id)
        return talk.handles[which]

    def touch(self, talk):
        talk.active = next(self.count)
        talk.came_back = False

    def saw(self, handle, talk):
        """A handle knows how its session stands after what was done through it."""
        assert handle.message_count == len(talk.messages())
        assert handle.token_count == sum(said.draft.tokens for said in talk.messages())

    def remember(self, talk, made):
        """A place is given out once."""
        for said in made:
            place = (id(talk.tree), said.id)
            assert place not in self.given_out
            self.given_out[place] = talk.tree

    def recover(self, talk):
        for run in talk.runs:
            if run.branch.open is run and run.until <= self.now:
                run.ended("interrupted")

    def some(self, have=1):
        return len(self.living()) >= have

    # Rules.

    @initialize()
    def begin(self):
        self.make("a")

    @rule(id=st.sampled_from(IDS))
    def make(self, id):
        if self.named(id) is not None:
            with pytest.raises(errors.SessionExists):
                self.store.create_session(id)
            return
        self.store.create_session(id)
        self.talks.append(Talk(id, next(self.count), []))
        self.touch(self.talks[-1])

    @rule(id=st.sampled_from(IDS))
    def open_or_create(self, id):
        self.store.session(id)
        talk = self.named(id)
        if talk is None:
            talk = Talk(id, next(self.count), [])
            self.talks.append(talk)
        self.recover(talk)
        self.touch(talk)

    @precondition(some)
    @rule(number=picks, which=st.integers(0, 1), text=texts, many=st.integers(1, 3), size=sizes, key=keys)
    def append(self, number, which, text, many, size, key):
        talk = self.pick(number)
        handle = self.handle(talk, which)
        drafts = [Draft(role="user", parts=(TextPart(text=text),), tokens=size) for _ in range(many)]
        if key in talk.keys:
            content, ids = talk.keys[key]
            if content != (text, many):
                with pytest.raises(errors.KeyReused):
                    handle.append(drafts, key=key)
                return
            again = handle.append(drafts, key=key)
            assert (again.ids, again.repeated) == (ids, True)
            self.saw(handle, talk)
            return
        made = talk.head.say(drafts)
        appended = handle.append(drafts, key=key)
        assert (appended.ids, appended.repeated) == ([said.id for said in made], False)
        if key is not None:
            talk.keys[key] = ((text, many), appended.ids)
        self.remember(talk, made)
        self.touch(talk)
        self.saw(handle, talk)

    @precondition(some)
    @rule(number=picks, which=st.integers(0, 1), size=sizes)
    def append_at_a_revision(self, number, which, size):
        talk = self.pick(number)
        handle = self.handle(talk, which)
        draft = Draft(role="user", parts=(TextPart(text="expected"),), tokens=size)
        if handle.revision != self.store.get_session(talk.id).revision:
            with pytest.raises(errors.StaleRevision):
                handle.append(draft, expected=handle.revision)
            return
        made = talk.head.say([draft])
        assert handle.append(draft, expected=handle.revision).ids == [made[0].id]
        self.remember(talk, made)
        self.touch(talk)

    @precondition(some)
    @rule(number=picks, which=st.integers(0, 1), take_over=st.booleans(), size=sizes)
    def open_turn(self, number, which, take_over, size):
        talk = self.pick(number)
        handle = self.handle(talk, which)
        draft = Draft(role="user", parts=(TextPart(text="q"),), tokens=size)
        before = talk.head.open
        if before is not None and before.until > self.now and not take_over:
            with pytest.raises(errors.SessionBusy):
                handle.turn(draft, lease=LEASE / 1_000)
            return
        if before is not None:
            before.ended("interrupted")
        run = Run(talk, talk.head, talk.head.last + 1)
        run.handle = handle.turn(draft, lease=LEASE / 1_000, take_over=take_over)
        run.until = self.now + LEASE
        made = talk.head.say([draft], run.position)
        assert run.handle.id == made[0].id
        talk.head.open = run
        talk.runs.append(run)
        self.remember(talk, made)
        self.touch(talk)
        self.saw(handle, talk)

    def runs(self):
        return [run for talk in self.talks for run in talk.runs if run.handle is not None]

    @precondition(runs)
    @rule(number=picks, size=sizes, call=calls | st.none())
    def add_to_a_turn(self, number, size, call):
        run = self.runs()[number % len(self.runs())]
        draft = Draft(role="assistant", parts=(TextPart(text="r"),), tokens=size)
        if call is not None:
            draft = Draft(role="assistant", parts=(ToolCallPart(call_id=call, tool="t", arguments={}),), tokens=size)
        if not run.goes_on() or run.talk.deleted is not None:
            with pytest.raises((errors.TurnClosed, errors.NotFound)):
                run.handle.add(draft)
            return
        made = run.branch.say([draft], run.position)
        assert run.handle.add(draft).ids == [made[0].id]
        self.renewed(run)
        self.remember(run.talk, made)
        self.touch(run.talk)

    def renewed(self, run):
        run.resumed()
        run.status, run.branch.open, run.until = "open", run, self.now + LEASE
        self.saw(run.handle.session, run.talk)

    @precondition(runs)
    @rule(number=picks)
    def open_an_answer(self, number):
        run = self.runs()[number % len(self.runs())]
        if not run.goes_on() or run.talk.deleted is not None:
            with pytest.raises((errors.TurnClosed, errors.NotFound)):
                run.handle.stream()
            return
        made = run.branch.say([Draft(role="assistant", tokens=0)], run.position)
        stream = run.handle.stream()
        assert stream.id == made[0].id
        made[0].state = "streaming"
        run.streams.append((made[0], stream))
        self.renewed(run)
        self.remember(run.talk, made)
        self.touch(run.talk)

    def streams(self):
        return [(run, *stream) for run in self.runs() for stream in run.streams]

    @precondition(streams)
    @rule(number=picks, size=sizes, close=st.booleans())
    def write_an_answer(self, number, size, close):
        run, said, stream = self.streams()[number % len(self.streams())]
        if said.state == "completed":
            with pytest.raises(errors.InvalidValue):
                stream.write("chunk ")
            return
        stream.write("chunk ")
        text = (said.draft.parts[0].text if said.draft.parts else "") + "chunk "
        act = stream.flush
        draft = Draft(role="assistant", parts=(TextPart(text=text),), tokens=0)
        if close:
            draft = Draft(role="assistant", parts=(TextPart(text="closed"),), tokens=size)
            act = functools.partial(stream.close, draft)
        if not run.goes_on() or run.talk.deleted is not None:
            with pytest.raises((errors.TurnClosed, errors.NotFound)):
                act()
            run.streams = [other for other in run.streams if other[1] is not stream]
            return
        act()
        said.draft, said.state = draft, "completed" if close else "streaming"
        self.renewed(run)

    @precondition(runs)
    @rule(number=picks, how=st.sampled_from(["complete", "fail", "cancel"]))
    def end_a_turn(self, number, how):
        run = self.runs()[number % len(self.runs())]
        end = getattr(run.handle, how)
        if not run.goes_on() or run.talk.deleted is not None:
            with pytest.raises((errors.TurnClosed, errors.NotFound)):
                end()
            return
        run.ended({"complete": "completed", "fail": "failed", "cancel": "cancelled"}[how])
        assert end().status == run.status
        self.saw(run.handle.session, run.talk)

    @precondition(some)
    @rule(number=picks, which=st.integers(0, 1), call=calls, text=texts)
    def record_a_result(self, number, which, call, text):
        talk = self.pick(number)
        handle = self.handle(talk, which)
        known = [found for found in talk.tool_calls() if found[0] == call]
        if not known:
            with pytest.raises(errors.ToolCallNotFound):
                handle.record_tool_result(call, text)
        elif all(result is not None for _, _, result in known):
            same = [result for _, _, result in known if result.draft.parts[0].text == text]
            if same:
                assert handle.record_tool_result(call, text).id == same[-1].id
                return
            with pytest.raises(errors.ToolCallAnswered):
                handle.record_tool_result(call, text)
        else:
            message = handle.record_tool_result(call, text)
            draft = Draft(role="tool", parts=message.parts, tokens=message.tokens)
            made = talk.head.say([draft], talk.head.open and talk.head.open.position)
            assert message.id == made[0].id
            self.remember(talk, made)
            self.touch(talk)

    @precondition(some)
    @rule(number=picks, at=picks, id=st.sampled_from(IDS))
    def fork(self, number, at, id):
        talk = self.pick(number)
        places = [None, *(said for branch in talk.branches() for said in branch.all())]
        said = places[at % len(places)]
        place = 0 if said is None else said.id
        if self.named(id) is not None:
            with pytest.raises(errors.SessionExists):
                self.handle(talk, 0).fork(place, id=id)
            return
        made = self.handle(talk, 0).fork(place, id=id)
        parent, fork_at = (None, 0) if said is None else (said.branch, said.position)
        fork = Talk(id, next(self.count), talk.tree, parent, fork_at)
        if said is not None:
            fork.head.inherit(talk.head if said in talk.head.all() else said.branch)
        fork.title = talk.title
        self.talks.append(fork)
        self.touch(fork)
        assert (made.branch, made.parent) == (fork.head.number, talk.id)
        self.saw(made, fork)

    @precondition(some)
    @rule(number=picks, which=st.integers(0, 1), at=picks, plain=st.booleans())
    def rewind(self, number, which, at, plain):
        talk = self.pick(number)
        handle = self.handle(talk, which)
        everywhere = [said for branch in talk.branches() for said in branch.all()]
        places = [None, *(talk.head.all() if plain else everywhere)]
        said = places[at % len(places)]
        handle.rewind(0 if said is None else said.position if plain else said.id)
        if talk.head.tip() is said:
            assert handle.branch == talk.head.number
        elif handle.branch <= len(talk.tree):
            talk.head = talk.tree[handle.branch - 1]
            assert talk.head.owner is talk
            self.touch(talk)
        else:
            parent, fork_at = (None, 0) if said is None else (said.branch, said.position)
            before, talk.head = talk.head, Path(talk.tree, talk, parent, fork_at)
            if said is not None:
                talk.head.inherit(before if said in before.all() else said.branch)
            self.touch(talk)
        assert handle.branch == talk.head.number
        assert talk.head.tip() is said
        self.saw(handle, talk)

    @precondition(some)
    @rule(number=picks, which=st.integers(0, 1), to=st.integers(1, 12))
    def switch(self, number, which, to):
        talk = self.pick(number)
        handle = self.handle(talk, which)
        branch = next((branch for branch in talk.branches() if branch.number == to), None)
        if branch is None:
            with pytest.raises(errors.BranchNotFound):
                handle.switch(to)
            return
        handle.switch(to)
        if branch is not talk.head:
            self.touch(talk)
        talk.head = branch
        self.saw(handle, talk)

    @precondition(some)
    @rule(number=picks, which=st.integers(0, 1), at=picks, deleted=st.booleans())
    def delete_or_restore_a_message(self, number, which, at, deleted):
        talk = self.pick(number)
        handle = self.handle(talk, which)
        places = [said for branch in talk.branches() for said in branch.all()]
        if not places:
            with pytest.raises(errors.MessageNotFound):
                handle.delete_message("1.1")
            return
        said = places[at % len(places)]
        said.deleted = deleted
        message = (handle.delete_message if deleted else handle.restore_message)(said.id)
        assert (message.id, message.deleted_at is not None) == (said.id, deleted)
        self.saw(handle, talk)

    @precondition(some)
    @rule(number=picks, which=st.integers(0, 1), title=texts | st.none())
    def rename(self, number, which, title):
        talk = self.pick(number)
        handle = self.handle(talk, which)
        talk.title = title
        assert handle.update(title=title).title == title
        self.saw(handle, talk)

    @precondition(some)
    @rule(number=picks, which=st.integers(0, 1), at=picks)
    def compact(self, number, which, at):
        talk = self.pick(number)
        handle = self.handle(talk, which)
        path = talk.head
        if not path.all():
            with pytest.raises(errors.InvalidValue):
                handle.compact(summary="nothing", keep_turns=0)
            return
        before = path.all()[at % len(path.all())]
        visible = [place for place in path.view() if isinstance(place, str) and "." in place]
        if not any(said.id in visible and said.position < before.position for said in path.all()):
            with pytest.raises(errors.InvalidValue):
                handle.compact(before=before.id, summary="nothing")
            return
        summary = f"summary {next(self.count)}"
        try:
            made = handle.compact(before=before.id, summary=summary)
        except errors.InvalidValue:  # only calls whose results come later
            assert any(isinstance(part, ToolCallPart) for said in path.all() for part in said.draft.parts)
            return
        assert made.to_position < before.position
        assert made.round == max((item.round for item in path.compactions), default=0) + 1
        path.compactions.append(Shrunk(made.round, made.from_position, made.to_position, summary))
        self.saw(handle, talk)

    @precondition(some)
    @rule(number=picks, which=st.integers(0, 1), round=st.none() | st.integers(1, 3))
    def undo_a_compaction(self, number, which, round):
        talk = self.pick(number)
        handle = self.handle(talk, which)
        known = talk.head.compactions
        wanted = [item for item in known if (not item.undone if round is None else item.round == round)]
        if not wanted:
            with pytest.raises(errors.CompactionNotFound):
                handle.undo_compaction(round)
            return
        assert handle.undo_compaction(round).round == wanted[-1].round
        wanted[-1].undone = True

    @rule(id=st.sampled_from(IDS))
    def trash(self, id):
        talk = self.named(id)
        if talk is None:
            with pytest.raises(errors.SessionNotFound):
                self.store.delete_session(id)
            return
        self.store.delete_session(id)
        talk.deleted = (self.now, talk.number)

    @rule(id=st.sampled_from(IDS))
    def restore(self, id):
        talk, living = self.trashed(id), self.named(id)
        if talk is None and living is None:
            with pytest.raises(errors.SessionNotFound):
                self.store.restore_session(id)
        elif talk is None:
            assert self.store.restore_session(id).title == living.title
        elif living is not None:
            with pytest.raises(errors.SessionExists):
                self.store.restore_session(id)
        else:
            talk.deleted = None
            talk.came_back = True
            self.saw(self.store.restore_session(id), talk)

    @rule(id=st.sampled_from(IDS), forks=st.sampled_from(["refuse", "keep", "erase"]))
    def erase(self, id, forks):
        talk = self.named(id) or self.trashed(id)
        if talk is None:
            with pytest.raises(errors.SessionNotFound):
                self.store.erase_session(id, forks=forks)
            return
        dependent = [
            other
            for other in self.talks
            if other is not talk
            and any(parent.owner is talk for branch in other.branches() for parent in branch.ancestors())
        ]
        if dependent and forks == "refuse":
            with pytest.raises(errors.SessionHasForks) as caught:
                self.store.erase_session(id)
            assert caught.value.forks == tuple(other.id for other in dependent)
            return
        out = [talk, *(dependent if forks == "erase" else [])]
        erased = self.store.erase_session(id, forks=forks)
        assert sorted(erased) == sorted(other.id for other in out)
        for other in out:
            self.talks.remove(other)
            for branch in other.branches():
                branch.owner = None
                branch.compactions = []

    @rule(step=st.sampled_from([0, 1, 1, 5, LEASE, 100_000]))
    def wait(self, step):
        self.now += step

    @rule()
    def reopen(self):
        self.store.close()
        self.store = self.opened()
        for talk in self.talks:
            talk.handles = [None, None]
            for run in talk.runs:
                run.handle = None

    # What must be true after each of them.

    @invariant()
    def the_lists_are_equal(self):
        self.the_newest_activity_is_first()
        by_creation = sorted(self.living(), key=lambda talk: talk.number, reverse=True)
        self.in_order(self.store.list_sessions(order="created"), by_creation, "created_at")
        trash = sorted((talk for talk in self.talks if talk.deleted), key=lambda talk: talk.deleted, reverse=True)
        self.in_order(self.store.list_sessions(deleted=True), trash, "deleted_at")

    def in_order(self, listed, expected, time):
        """Within a millisecond the newest is first too."""
        assert [session.id for session in listed] == [talk.id for talk in expected]

    def the_newest_activity_is_first(self):
        """Exactly so also within a millisecond, but for one that came out of the trash: its time is from before."""
        listed = self.store.list_sessions()
        assert sorted(session.id for session in listed) == sorted(talk.id for talk in self.living())
        for newer, older in itertools.combinations(listed, 2):
            first, second = self.named(newer.id), self.named(older.id)
            assert first.came_back or second.came_back or first.active > second.active

    @invariant()
    def every_session_is_equal(self):
        for session in self.store.list_sessions():
            talk = self.named(session.id)
            found = session.messages(deleted=True)
            expected = talk.head.all()
            assert [message.id for message in found] == [said.id for said in expected]
            assert [message.parts for message in found] == [said.draft.parts for said in expected]
            assert [message.deleted_at is not None for message in found] == [said.deleted for said in expected]
            assert [message.turn for message in found] == [said.turn for said in expected]
            assert [message.state for message in found] == [said.state for said in expected]
            view = session.messages(active=True)
            assert [m.text if "compaction" in (m.metadata or {}) else m.id for m in view] == talk.head.view()
            assert session.active_tokens() == sum(message.tokens for message in view)
            assert len(session.history()) == len(view)
            assert (session.title, session.branch) == (talk.title, talk.head.number)
            self.saw(session, talk)
            self.branches_are_equal(session, talk)
            self.the_revision_tells_of_changes(session, talk, found)

    def branches_are_equal(self, session, talk):
        shown = [branch for branch in talk.branches() if branch.said or branch is talk.head]
        assert [(b.id, b.parent, b.fork_at, b.last, b.current) for b in session.branches()] == [
            (b.number, b.parent and b.parent.number, b.fork_at, b.last, b is talk.head) for b in shown
        ]
        assert [(c.call_id, c.message, c.status, c.result_message) for c in session.tool_calls()] == [
            (
                call_id,
                call.id,
                "success" if result else "canceled" if call.given_up else "pending",
                result and result.id,
            )
            for call_id, call, result in talk.tool_calls()
        ]
        status = {(run.branch.number, run.position): run.status for run in talk.runs}
        for turn in session.turns():
            assert turn.status == status.get((turn.branch, turn.position), turn.status)

    def the_revision_tells_of_changes(self, session, talk, found):
        """Whoever knows the revision knows whether there is something to read again."""
        own = {branch.number for branch in talk.branches()}
        said = tuple((message.id, message.deleted_at) for message in found)
        # An answer that streams in a shared past is told to the session that it streams in.
        streamed = tuple((message.state, message.text) for message in found if message.branch in own)
        print_ = (session.title, session.branch, said, streamed, tuple(talk.head.view()))
        revision, before = self.seen.get(talk.number, (-1, None))
        assert session.revision >= revision
        assert session.revision > revision or print_ == before
        self.seen[talk.number] = (session.revision, print_)


TestComparison = Comparison.TestCase
TestComparison.settings = settings(
    max_examples=200 if "RECOLLECT_TEST_LONG" in os.environ else 80,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
