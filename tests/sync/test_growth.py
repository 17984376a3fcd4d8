"""Files that grow, move, are rewritten and are imported in between lead to the same store as one import at the end."""

from __future__ import annotations

import pathlib
import random
import sys

import pytest

import recollect
from recollect.errors import NotFound
from recollect.sources import registry
from recollect.sync.importer import ImportOptions, import_files
from recollect.sync.native import read_originals

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from toy_source import ToySource, lines


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    source = ToySource()
    monkeypatch.setattr(registry, "get_source", lambda name: source)


@pytest.fixture(params=["sqlite", "postgres"])
def location(request, tmp_path):
    return str(tmp_path / "r.db") if request.param == "sqlite" else request.getfixturevalue("postgres")


class Tool:
    """A tool that writes conversations: it appends messages, branches, compacts, forks and starts sub-agents."""

    def __init__(self, generator):
        self.generator, self.items, self.count = generator, {}, 0
        self.start()

    def start(self):
        name = f"s{len(self.items)}"
        self.items[name] = [{"start": name, "cwd": f"/projects/{name}"}]
        return name

    def messages(self, name):
        return [item for item in self.items[name] if "id" in item and "session" not in item]

    def keys(self, session):
        """Return the keys of all messages of a session."""
        name = session.removeprefix("toy:").removesuffix(":agent")
        own = session if session.endswith(":agent") else None
        return sorted({item["id"] for item in self.items[name] if "id" in item and item.get("session") == own})

    def path(self, name):
        """Return the messages of the branch that the tool continues."""
        by_key = {item["id"]: item for item in self.messages(name)}
        active = [item["active"] for item in self.items[name] if "active" in item]
        key = active[-1] if active else next((item["id"] for item in reversed(self.messages(name))), None)
        path = []
        while key is not None:
            path.append(by_key[key])
            key = by_key[key]["after"]
        return path[::-1]

    def message(self, name, after, **fields):
        self.count += 1
        item = {
            "id": f"k{self.count}",
            "after": after,
            "text": f"{name} {self.count}",
            "at": 1_700_000_000_000 + self.count,
        }
        self.items[name] += [{**item, **fields}, *([] if "session" in fields else [{"active": item["id"]}])]

    def step(self):
        name = self.generator.choice(list(self.items))
        path = self.path(name)
        after = path[-1]["id"] if path else None
        kind = self.generator.choice(
            ("message",) * 6 + ("branch", "fork", "child", "compact", "title", "change", "start")
        )
        if kind == "branch" and len(path) > 1:
            self.message(name, self.generator.choice(path[:-1])["id"])
        elif kind == "fork" and path:
            # Without a pointer to the origin, as Claude Code does: the past is copied.
            past = path[: self.generator.randint(1, len(path))]
            copy = self.start()
            keys = {item["id"] for item in past}
            compactions = [item for item in self.items[name] if item.get("compact") in keys]
            self.items[copy] += [*past, *compactions, {"active": past[-1]["id"]}]
            self.message(copy, past[-1]["id"])
        elif kind == "child":
            child = f"toy:{name}:agent"
            children = [item["id"] for item in self.items[name] if item.get("session") == child]
            self.items[name].append({"child": child})
            self.message(name, children[-1] if children else None, session=child)
        elif kind == "compact" and path:
            self.items[name].append(
                {"compact": self.generator.choice(path)["id"], "summary": f"sum {self.count}", "at": 5}
            )
        elif kind == "title":
            self.items[name].append({"title": f"title {self.count}"})
        elif kind == "change" and path:
            item = self.generator.choice(path)
            if all(item not in self.items[other] for other in self.items if other != name):
                self.items[name].append({**item, "text": f"{item['text']}, changed", "after": item["after"]})
        elif kind == "start":
            self.start()
        else:
            self.message(name, after)

    def write(self, folder, name, share=1.0):
        """Write the file of a conversation, or the first part of what it lacks."""
        file = folder / f"{name}.jsonl"
        data = lines(*self.items[name])
        size = file.stat().st_size if file.exists() else 0
        file.write_bytes(data[: size + int((len(data) - size) * share)])


def leaves(session):
    """Return the paths of the branches of a session that no other branch continues, as keys and texts.

    A branch without a message of its own is not listed, so that one which ends in the shared past may be missing.
    """
    paths = {
        tuple((message.key, message.text) for message in session.messages(branch=branch))
        for branch in session.branches.list()
    }
    ends = [path for path in paths if not any(path == other[: len(path)] for other in paths if other != path)]
    return {path for path in ends if any(text.startswith(session.id.removeprefix("toy:")) for _, text in path[-1:])}


def content(store, tool):
    """Return what the imports stored, without the numbers of branches."""
    assert store.maintenance.check().problems == ()
    result = {}
    for info in store.list_sessions(limit=500, delegates=None):
        session = store.get_session(info.id)
        try:
            original = read_originals(store, info.id)
        except NotFound:
            original = None
        result[info.id] = (
            info.title, info.working_dir, info.relation == "delegate" and info.parent,
            [message.text for message in session.messages()],
            sorted((item.summary, item.created_at_ms) for item in session.compactions.list()),
            original, leaves(session), [session.message(key=key).text for key in tool.keys(info.id)],
        )  # fmt: skip
    return result


def run(location, owner, *paths):
    with recollect.open(location, owner=owner) as store:
        import_files(store, paths, ImportOptions(sources=["toy"], indexes=False))


def grow(generator, folder, location, owner):
    """Write conversations as a tool does, import some of the files now and then, and return the tool."""
    tool = Tool(generator)
    for _ in range(generator.randint(5, 20)):
        for _ in range(generator.randint(1, 4)):
            tool.step()
        for name in tool.items:
            if generator.random() < 0.4:
                tool.write(folder, name, generator.random() if generator.random() < 0.3 else 1.0)
        files = [file for name in tool.items if (file := folder / f"{name}.jsonl").exists()]
        generator.shuffle(files)
        if files and generator.random() < 0.5:
            run(location, owner, *files[: generator.randint(1, len(files))])
    for name in tool.items:
        tool.write(folder, name)
    return tool


def test_any_interleaving_leads_to_the_same_store(location, tmp_path, long):
    for seed in range(300 if long else 8):
        folder = tmp_path / str(seed)
        folder.mkdir()
        tool = grow(random.Random(seed), folder, location, f"often {seed}")
        run(location, f"often {seed}", folder)
        run(location, f"once {seed}", folder)
        with (
            recollect.open(location, owner=f"often {seed}") as often,
            recollect.open(location, owner=f"once {seed}") as once,
        ):
            assert content(often, tool) == content(once, tool), seed
