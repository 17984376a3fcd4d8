"""Search against a plain model of which messages have which words, whatever was done to the store before."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import recollect
from recollect import errors
from recollect.ops.search import find, index, query
from recollect.ops.search.words import fold, spans, tokens

# What is written, and the words that it is to everyone.
WORDS = {
    "red": ["red"],
    "Infrared": ["infrared"],
    "redder": ["redder"],
    "Café": ["cafe"],
    "cafeteria": ["cafeteria"],
    "Straße": ["strasse"],
    "北京": ["北", "京"],
    "京": ["京"],
    "👍": ["👍"],
    "red_cafe": ["red", "cafe"],
    "x": ["x"],
    "42": ["42"],
    "привет": ["привет"],
    "приветствие": ["приветствие"],
}

written = st.sampled_from(sorted(WORDS))
texts = st.lists(written, min_size=1, max_size=5)
picks = st.integers(0, 1_000)


def cut(words: list[str]) -> list[str]:
    return [token for word in words for token in WORDS[word]]


class Said:
    """A message of the model."""

    def __init__(self, id: str, words: list[str]) -> None:
        self.id, self.tokens, self.deleted = id, cut(words), False


class Talk:
    """A session of the model: its active path, and all that it reaches."""

    def __init__(self, path: list[Said]) -> None:
        self.path, self.all, self.title = path, set(path), None
        self.trashed = False


class Model:
    """Does everything to a store and to itself, and compares what is found."""

    def __init__(self) -> None:
        self.store = recollect.open(":memory:")
        self.talks: dict[str, Talk] = {}
        self.count = 0

    def living(self) -> list[str]:
        return [id for id, talk in self.talks.items() if not talk.trashed]

    def do(self, step) -> None:
        name, number, *rest = step
        living = self.living()
        if name == "make" or not living:
            self.make(rest[0] if rest and isinstance(rest[0], list) else None)
            return
        id = living[number % len(living)]
        getattr(self, name)(id, self.talks[id], *rest)

    def new(self) -> str:
        self.count += 1
        return f"s{self.count}"

    def make(self, title) -> None:
        id = self.new()
        self.store.session(id, title=None if title is None else " ".join(title))
        self.talks[id] = Talk([])
        self.talks[id].title = None if title is None else cut(title)

    def append(self, id, talk, *some) -> None:
        session = self.store.session(id)
        made = session.append([{"role": "user", "content": " ".join(words)} for words in some])
        said = [Said(name, words) for name, words in zip(made.ids, some, strict=True)]
        talk.path += said
        talk.all |= set(said)

    def rename(self, id, talk, title) -> None:
        self.store.session(id).update(title=" ".join(title))
        talk.title = cut(title)

    def rewind(self, id, talk, number) -> None:
        at = number % (len(talk.path) + 1)
        self.store.session(id).rewind(talk.path[at - 1].id if at else 0)
        talk.path = talk.path[:at]

    def fork(self, id, talk, number) -> None:
        at = number % (len(talk.path) + 1)
        new = self.new()
        self.store.session(id).fork(at=talk.path[at - 1].id if at else 0, id=new, title=None)
        self.talks[new] = Talk(talk.path[:at])

    def mark(self, id, talk, number) -> None:
        if not talk.path:
            return
        said = talk.path[number % len(talk.path)]
        session = self.store.session(id)
        (session.restore_message if said.deleted else session.delete_message)(said.id)
        said.deleted = not said.deleted

    def trash(self, id, talk) -> None:
        self.store.delete_session(id)
        talk.trashed = True

    def restore(self, *_) -> None:
        for id, talk in self.talks.items():
            if talk.trashed:
                self.store.restore_session(id)
                talk.trashed = False
                return

    def erase(self, id, _talk, forks) -> None:
        with contextlib.suppress(errors.SessionHasForks):
            for gone in self.store.erase_session(id, forks=forks):
                del self.talks[gone]

    def index(self, *_) -> None:
        self.store.index()

    def reindex(self, *_) -> None:
        self.store.reindex()

    def check(self, wanted: Wanted) -> None:
        text = wanted.written()
        hits = self.everything(text)
        expected = {said for id in self.living() for said in self.talks[id].all if self.has(said, wanted)}
        assert {(self.named(hit), hit.session) for hit in hits if hit.message} == {
            (said, hit.session) for said in expected for hit in hits if self.named(hit) is said
        }, text
        assert {self.named(hit) for hit in hits if hit.message} == expected, text
        titled = {
            id for id in self.living()
            if self.talks[id].title is not None and wanted.positive() and wanted.in_(self.talks[id].title)
        }  # fmt: skip
        assert {hit.session for hit in hits if hit.message is None} == titled, text
        for id in self.living()[:3]:
            own = {hit.message for hit in self.everything(text, session=id)}
            assert own == {said.id for said in self.talks[id].all if self.has(said, wanted)}, (text, id)

    def everything(self, text, **filters):
        page = self.store.search(text, 4, **filters)
        hits = list(page)
        while page.next is not None:
            page = self.store.search(text, 4, after=page.next, **filters)
            hits += page
        assert len({(hit.session, hit.message) for hit in hits}) == len(hits)
        return hits

    def named(self, hit):
        return next((said for said in self.talks[hit.session].all if said.id == hit.message), None)

    @staticmethod
    def has(said, wanted) -> bool:
        return not said.deleted and wanted.in_(said.tokens)


class Wanted:
    """A query of the model: it can be typed, and looked for in a list of words."""

    def __init__(self, kind: str, *inner) -> None:
        self.kind, self.inner = kind, inner

    def written(self) -> str:
        if self.kind == "word":
            return self.inner[0]
        if self.kind == "prefix":
            return self.inner[0] + "*"
        if self.kind == "phrase":
            return '"' + " ".join(self.inner[0]) + '"'
        if self.kind == "or":
            return "(" + " OR ".join(item.written() for item in self.inner) + ")"
        return (
            "(" + " ".join([*(i.written() for i in self.inner[0]), *("-" + i.written() for i in self.inner[1])]) + ")"
        )

    def positive(self) -> bool:
        if self.kind == "or":
            return all(item.positive() for item in self.inner)
        if self.kind == "and":
            return bool(self.inner[0]) and all(item.positive() for side in self.inner for item in side)
        return True

    def in_(self, having: list[str], *, loose: bool = True) -> bool:
        """Look for it; what is not excluded is also found inside of words."""
        if self.kind == "or":
            return any(item.in_(having, loose=loose) for item in self.inner)
        if self.kind == "and":
            if any(item.in_(having, loose=False) for item in self.inner[1]):
                return False
            return all(item.in_(having, loose=loose) for item in self.inner[0])
        row = cut(self.inner[0]) if self.kind == "phrase" else tokens(fold(self.inner[0]))
        return any(self.here(having[at : at + len(row)], row, loose) for at in range(len(having)))

    def here(self, some: list[str], row: list[str], loose: bool) -> bool:
        if len(some) < len(row):
            return False
        loose = loose and self.kind != "phrase"
        inside = loose and len(row[0]) >= 3
        goes_on = self.kind == "prefix" or (loose and len(row) > 1)
        if len(row) == 1:
            first, wanted = some[0], row[0]
            return first == wanted or (goes_on and first.startswith(wanted)) or (inside and wanted in first)
        begins = some[0] == row[0] or (inside and some[0].endswith(row[0]))
        ends = some[-1] == row[-1] or (goes_on and some[-1].startswith(row[-1]))
        return begins and ends and some[1:-1] == row[1:-1]


pieces = st.sampled_from(
    [
        "red",
        "fra",
        "cafe",
        "STRASSE",
        "tras",
        "京",
        "北京",
        "👍",
        "x",
        "42",
        "ivet",
        "red_ca",
        "d_cafe",
        "red_cafe",
        "при",
    ]
)
leaves = st.one_of(
    pieces.map(lambda word: Wanted("word", word)),
    st.sampled_from(["re", "caf", "4", "прив", "北"]).map(lambda word: Wanted("prefix", word)),
    st.lists(written, min_size=1, max_size=3).map(lambda words: Wanted("phrase", words)),
)
queries = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda items: Wanted("or", *items)),
        st.tuples(st.lists(inner, max_size=2), st.lists(inner, max_size=2))
        .filter(lambda both: both[0] or both[1])
        .map(lambda both: Wanted("and", *both)),
    ),
    max_leaves=6,
)

steps = st.one_of(
    st.tuples(st.just("make"), picks, texts),
    st.builds(lambda number, some: ("append", number, *some), picks, st.lists(texts, min_size=1, max_size=4)),
    st.builds(lambda number, some: ("append", number, *some), picks, st.lists(texts, min_size=1, max_size=4)),
    st.tuples(st.just("rename"), picks, texts),
    st.tuples(st.just("rewind"), picks, picks),
    st.tuples(st.just("fork"), picks, picks),
    st.tuples(st.just("mark"), picks, picks),
    st.tuples(st.just("trash"), picks),
    st.tuples(st.just("restore"), picks),
    st.tuples(st.just("erase"), picks, st.sampled_from(["keep", "erase", "refuse"])),
    st.tuples(st.just("index"), picks),
    st.tuples(st.just("reindex"), picks),
)
slow = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture
def few(monkeypatch):
    """Make pages and candidates few, so that small stores cross their ends."""
    monkeypatch.setattr(find, "POOL", 3)
    monkeypatch.setattr(index, "PAGE", 2)


@slow
@given(done=st.lists(st.one_of(steps, queries), max_size=30), last=st.lists(queries, min_size=1, max_size=4))
def test_it_finds_what_is_there(few, done, last):
    model = Model()
    with model.store:
        for step in [*done, *last]:
            if isinstance(step, Wanted):
                model.check(step)
            else:
                model.do(step)


@slow
@given(some=st.lists(texts, min_size=1, max_size=12), wanted=st.lists(queries, min_size=1, max_size=8))
def test_queries(some, wanted):
    model = Model()
    with model.store:
        model.make(["red", "Café"])
        model.append("s1", model.talks["s1"], *some)
        for item in wanted:
            model.check(item)


@settings(max_examples=500, deadline=None)
@given(st.one_of(st.text(), st.text(alphabet='ab"()-*:. ANDORT\0\ud800é北'), st.lists(st.sampled_from(
    ["(", ")", "-", '"', "*", "AND", "OR", "NOT", "a", "role:user", "session:x", "after:2025", "before:", " "]
)).map("".join)))  # fmt: skip
def test_whatever_is_typed_is_a_query(text):
    found = query.parse(text, 0)
    assert found == query.parse(text, 0)
    for words in query.positive(found.words):
        assert words.tokens
        assert all(tokens(token) == [token] for token in words.tokens)


@settings(max_examples=300, deadline=None)
@given(st.text())
def test_words_stand_where_they_were_written(text):
    places = spans(text)
    assert all(0 <= low < high <= len(text) for low, high, _ in places)
    assert [low for low, _, _ in places] == sorted(low for low, _, _ in places)
    assert all(token in tokens(fold(text[low:high])) for low, high, token in places)
    assert tokens(fold(fold(text))) == tokens(fold(text))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(texts=st.lists(st.text(min_size=1), min_size=1, max_size=6))
def test_any_text_is_found_by_its_own_words(texts):
    with recollect.open(":memory:") as store:
        ids = store.session("a").append([{"role": "user", "content": text} for text in texts]).ids
        for id, text in zip(ids, texts, strict=True):
            for token in tokens(fold(text))[:5]:
                assert id in {hit.message for hit in store.search(f'"{token}"', 1_000)}, token
            if tokens(fold(text)):
                assert id in {hit.message for hit in store.search('"' + text.replace('"', " ") + '"', 1_000)}
