"""Search against a plain model of the words of each message, after any sequence of operations on the store."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import recollect
from recollect import errors
from recollect.storage.search import index, query, retrieval
from recollect.storage.search.analysis import fold, token_spans, tokenize

# Words as a message contains them, and the tokens that they become.
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

words_in_texts = st.sampled_from(sorted(WORDS))
texts = st.lists(words_in_texts, min_size=1, max_size=5)
picks = st.integers(0, 1_000)


def tokens_of(words: list[str]) -> list[str]:
    return [token for word in words for token in WORDS[word]]


class SearchableMessage:
    """A message of the model."""

    def __init__(self, id: str, words: list[str]) -> None:
        self.id, self.tokens, self.deleted = id, tokens_of(words), False


class SearchableSession:
    """A session of the model: its active path, and the messages of all its branches."""

    def __init__(self, path: list[SearchableMessage]) -> None:
        self.path, self.all, self.title = path, set(path), None
        self.in_trash = False


class SearchModel:
    """A model of a store: applies each operation to both, and compares the hits."""

    def __init__(self) -> None:
        self.store = recollect.open(":memory:")
        self.sessions: dict[str, SearchableSession] = {}
        self.count = 0

    def live_ids(self) -> list[str]:
        """Return the ids of the sessions that are not in the trash."""
        return [id for id, model in self.sessions.items() if not model.in_trash]

    def apply(self, step) -> None:
        """Apply an operation to the store and to the model."""
        name, number, *rest = step
        live = self.live_ids()
        if name == "make" or not live:
            self.make(rest[0] if rest and isinstance(rest[0], list) else None)
            return
        id = live[number % len(live)]
        getattr(self, name)(id, self.sessions[id], *rest)

    def new_id(self) -> str:
        self.count += 1
        return f"s{self.count}"

    def make(self, title) -> None:
        id = self.new_id()
        self.store.session(id, title=None if title is None else " ".join(title))
        self.sessions[id] = SearchableSession([])
        self.sessions[id].title = None if title is None else tokens_of(title)  # pyright: ignore[reportAttributeAccessIssue]

    def append(self, id, model, *texts) -> None:
        session = self.store.session(id)
        result = session.append([{"role": "user", "content": " ".join(words)} for words in texts])
        messages = [SearchableMessage(message_id, words) for message_id, words in zip(result.ids, texts, strict=True)]
        model.path += messages
        model.all |= set(messages)

    def rename(self, id, model, title) -> None:
        self.store.session(id).update(title=" ".join(title))
        model.title = tokens_of(title)

    def rewind(self, id, model, number) -> None:
        count = number % (len(model.path) + 1)
        self.store.session(id).rewind(model.path[count - 1].id if count else 0)
        model.path = model.path[:count]

    def fork(self, id, model, number) -> None:
        count = number % (len(model.path) + 1)
        fork_id = self.new_id()
        self.store.session(id).fork(at=model.path[count - 1].id if count else 0, id=fork_id, title=None)
        self.sessions[fork_id] = SearchableSession(model.path[:count])

    def mark(self, id, model, number) -> None:
        """Delete a message, or restore it if it is deleted."""
        if not model.path:
            return
        message = model.path[number % len(model.path)]
        session = self.store.session(id)
        (session.restore_messages if message.deleted else session.delete_messages)([message.id])
        message.deleted = not message.deleted

    def trash(self, id, model) -> None:
        self.store.delete_session(id)
        model.in_trash = True

    def restore(self, *_) -> None:
        for id, model in self.sessions.items():
            if model.in_trash:
                self.store.restore_session(id)
                model.in_trash = False
                return

    def erase(self, id, _model, forks) -> None:
        with contextlib.suppress(errors.SessionHasForks):
            for session_id in self.store.erase_session(id, forks=forks):
                del self.sessions[session_id]

    def index(self, *_) -> None:
        self.store.maintenance.index()

    def reindex(self, *_) -> None:
        self.store.maintenance.reindex()

    def check(self, query: ModelQuery) -> None:
        """Check the hits of a query, in all sessions and in some of them."""
        text = query.text()
        hits = self.all_hits(text)
        expected = {
            message for id in self.live_ids() for message in self.sessions[id].all if self.has_hit(message, query)
        }
        assert {(self.message_of(hit), hit.session) for hit in hits if hit.message} == {
            (message, hit.session) for message in expected for hit in hits if self.message_of(hit) is message
        }, text
        assert {self.message_of(hit) for hit in hits if hit.message} == expected, text
        matching_titles = {
            id for id in self.live_ids()
            if self.sessions[id].title is not None and query.positive() and query.matches(self.sessions[id].title)
        }  # fmt: skip
        assert {hit.session for hit in hits if hit.message is None} == matching_titles, text
        for id in self.live_ids()[:3]:
            own = {hit.message for hit in self.all_hits(text, session=id)}
            assert own == {message.id for message in self.sessions[id].all if self.has_hit(message, query)}, (text, id)

    def all_hits(self, text, **filters):
        """Return the hits of all pages."""
        page = self.store.search(text, 4, **filters)
        hits = list(page)
        while page.next is not None:
            page = self.store.search(text, 4, after=page.next, **filters)
            hits += page
        assert len({(hit.session, hit.message) for hit in hits}) == len(hits)
        return hits

    def message_of(self, hit):
        return next((message for message in self.sessions[hit.session].all if message.id == hit.message), None)

    @staticmethod
    def has_hit(message, query) -> bool:
        return not message.deleted and query.matches(message.tokens)


class ModelQuery:
    """A query of the model: it has a text to search for, and matches lists of tokens."""

    def __init__(self, kind: str, *inner) -> None:
        self.kind, self.inner = kind, inner

    def text(self) -> str:
        """Return the query as a user types it."""
        if self.kind == "word":
            return self.inner[0]
        if self.kind == "prefix":
            return self.inner[0] + "*"
        if self.kind == "phrase":
            return '"' + " ".join(self.inner[0]) + '"'
        if self.kind == "or":
            return "(" + " OR ".join(item.text() for item in self.inner) + ")"
        return (
            "("
            + " ".join([*(item.text() for item in self.inner[0]), *("-" + item.text() for item in self.inner[1])])
            + ")"
        )

    def positive(self) -> bool:
        """Return whether no part of the query consists only of exclusions."""
        if self.kind == "or":
            return all(item.positive() for item in self.inner)
        if self.kind == "and":
            return bool(self.inner[0]) and all(item.positive() for side in self.inner for item in side)
        return True

    def matches(self, tokens: list[str], *, loose: bool = True) -> bool:
        """Return whether a list of tokens matches. Words that are not excluded also match inside of tokens."""
        if self.kind == "or":
            return any(item.matches(tokens, loose=loose) for item in self.inner)
        if self.kind == "and":
            if any(item.matches(tokens, loose=False) for item in self.inner[1]):
                return False
            return all(item.matches(tokens, loose=loose) for item in self.inner[0])
        phrase = tokens_of(self.inner[0]) if self.kind == "phrase" else tokenize(fold(self.inner[0]))
        return any(self.matches_at(tokens[start : start + len(phrase)], phrase, loose) for start in range(len(tokens)))

    def matches_at(self, tokens: list[str], phrase: list[str], loose: bool) -> bool:
        """Return whether a phrase matches these tokens, as many as it has."""
        if len(tokens) < len(phrase):
            return False
        loose = loose and self.kind != "phrase"
        inside = loose and len(phrase[0]) >= 3
        prefix = self.kind == "prefix" or (loose and len(phrase) > 1)
        if len(phrase) == 1:
            token, word = tokens[0], phrase[0]
            return token == word or (prefix and token.startswith(word)) or (inside and word in token)
        begins = tokens[0] == phrase[0] or (inside and tokens[0].endswith(phrase[0]))
        ends = tokens[-1] == phrase[-1] or (prefix and tokens[-1].startswith(phrase[-1]))
        return begins and ends and tokens[1:-1] == phrase[1:-1]


query_words = st.sampled_from(
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
    query_words.map(lambda word: ModelQuery("word", word)),
    st.sampled_from(["re", "caf", "4", "прив", "北"]).map(lambda word: ModelQuery("prefix", word)),
    st.lists(words_in_texts, min_size=1, max_size=3).map(lambda words: ModelQuery("phrase", words)),
)
queries = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda items: ModelQuery("or", *items)),
        st.tuples(st.lists(inner, max_size=2), st.lists(inner, max_size=2))
        .filter(lambda sides: sides[0] or sides[1])
        .map(lambda sides: ModelQuery("and", *sides)),
    ),
    max_leaves=6,
)

steps = st.one_of(
    st.tuples(st.just("make"), picks, texts),
    st.builds(lambda number, batch: ("append", number, *batch), picks, st.lists(texts, min_size=1, max_size=4)),
    st.builds(lambda number, batch: ("append", number, *batch), picks, st.lists(texts, min_size=1, max_size=4)),
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
many_steps = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture
def small_pages(monkeypatch):
    """Lower the sizes of pages and candidate pools, so that small stores have several."""
    monkeypatch.setattr(retrieval, "POOL_SIZE", 3)
    monkeypatch.setattr(index, "PAGE_SIZE", 2)


@many_steps
@given(operations=st.lists(st.one_of(steps, queries), max_size=30), last=st.lists(queries, min_size=1, max_size=4))
def test_search_matches_the_model_after_any_operations(small_pages, operations, last):
    model = SearchModel()
    with model.store:
        for step in [*operations, *last]:
            if isinstance(step, ModelQuery):
                model.check(step)
            else:
                model.apply(step)


@many_steps
@given(batch=st.lists(texts, min_size=1, max_size=12), searches=st.lists(queries, min_size=1, max_size=8))
def test_queries_match_the_model(batch, searches):
    model = SearchModel()
    with model.store:
        model.make(["red", "Café"])
        model.append("s1", model.sessions["s1"], *batch)
        for item in searches:
            model.check(item)


@settings(max_examples=500, deadline=None)
@given(st.one_of(st.text(), st.text(alphabet='ab"()-*:. ANDORT\0\ud800é北'), st.lists(st.sampled_from(
    ["(", ")", "-", '"', "*", "AND", "OR", "NOT", "a", "role:user", "session:x", "after:2025", "before:", " "]
)).map("".join)))  # fmt: skip
def test_any_text_parses_as_a_query(text):
    parsed = query.parse_query(text, 0)
    assert parsed == query.parse_query(text, 0)
    for words in query.wanted_phrases(parsed.words):
        assert words.tokens
        assert all(tokenize(token) == [token] for token in words.tokens)


@settings(max_examples=300, deadline=None)
@given(st.text())
def test_token_spans_match_the_text(text):
    spans = token_spans(text)
    assert all(0 <= low < high <= len(text) for low, high, _ in spans)
    assert [low for low, _, _ in spans] == sorted(low for low, _, _ in spans)
    assert all(token in tokenize(fold(text[low:high])) for low, high, token in spans)
    assert tokenize(fold(fold(text))) == tokenize(fold(text))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(texts=st.lists(st.text(min_size=1), min_size=1, max_size=6))
def test_any_text_matches_a_search_for_its_own_words(texts):
    with recollect.open(":memory:") as store:
        ids = store.session("a").append([{"role": "user", "content": text} for text in texts]).ids
        for id, text in zip(ids, texts, strict=True):
            for token in tokenize(fold(text))[:5]:
                assert id in {hit.message for hit in store.search(f'"{token}"', 1_000)}, token
            if tokenize(fold(text)):
                assert id in {hit.message for hit in store.search('"' + text.replace('"', " ") + '"', 1_000)}
