"""Compare the syntax trees of a package in two revisions, and show that only names, module paths and texts changed.

    python tools/compare_trees.py OLD [NEW] [--package src/recollect ...] [--map FILE.toml ...] [--texts]

OLD and NEW are git revisions or directories; without NEW, the working tree is compared. Modules may be merged, split
and moved, so the unit of comparison is the top-level statement: function, class, assignment, any other statement.

1. Every definition becomes a flat list of tokens, without docstrings, `pass`, imports and `__all__`.
   Each name is resolved: `figure.whole` and `whole` after `from figure import whole` are the same global, in the module
   that defines it; a name of another library is its full dotted path; a local belongs to its scope.
2. Old definitions are matched to new ones: by the rename maps (`[modules]` new module = [old modules], `[renames]`
   old.module.name = new name, `[attributes]` old.module.Class.name = new name); otherwise by equal structure, in which
   names do not count, and then by name, module, texts, order and the definitions that refer to them.
3. Each pair is compared token by token. Locals map one-to-one in their definition. A global must map to the definition
   that its old definition was matched to. An attribute may be renamed only if a class, `__slots__` or `self.x = ...`
   renames it too (or a map does), a keyword only if a parameter or an attribute is. An attribute with several new names
   is listed with counts, because without types the class that it belongs to is unknown: read that list.

The exit status is 1 if a definition differs in structure, was added or removed, or (without --texts) if a string
differs. With --texts, strings may change, but not the values that an f-string formats, unless you pass --text-values.
--texts-report lists each changed string; those marked `!` look like values rather than prose, or have other fields in
braces. Not compared: the order of top-level statements, SQL, templates, and the docstrings except in that list.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import gc
import pathlib
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tree_tokens import Definition, Side, Token, effective_statements, load, without_texts

_FIELDS = re.compile(r"\{(\w+)[^{}]*\}")
_ROUNDS = 4  # rounds of matching. Each uses the references of the previous round; the largest merges needed three.


# --- matching and comparing ---------------------------------------------------------------------------------------


@dataclass
class Maps:
    """The contents of the rename maps."""

    modules: dict[str, str] = field(default_factory=dict)
    renames: dict[str, str] = field(default_factory=dict)
    attributes: set[tuple[str, str]] = field(default_factory=set)

    @classmethod
    def read(cls, paths: Iterable[str]) -> Maps:
        """Read and join rename maps."""
        maps = cls()
        for path in paths:
            data = tomllib.loads(pathlib.Path(path).read_text(encoding="utf-8"))
            maps.modules |= {old: new for new, olds in data.get("modules", {}).items() for old in olds}
            maps.renames |= data.get("renames", {})
            maps.attributes |= {(old.rpartition(".")[2], new) for old, new in data.get("attributes", {}).items()}
        return maps

    def target(self, definition: Definition) -> str:
        """Return the full name that a definition has in the new tree according to the maps."""
        module = self.modules.get(definition.module, definition.module)
        return f"{module}.{self.renames.get(definition.qualified_name, definition.names[0])}"


class Pair(NamedTuple):
    """An old definition and the new definition that replaces it."""

    old: Definition
    new: Definition


class Matcher:
    """Match the definitions of two sides, best evidence first."""

    def __init__(self, old: Side, new: Side, maps: Maps) -> None:
        self.old = list(old.definitions)
        self.new = list(new.definitions)
        self.pairs: list[Pair] = []
        self._maps = maps
        self.modules: Counter[tuple[str, str]] = Counter()
        self._votes: Counter[tuple[str, str]] = Counter()

    def match(self) -> list[Pair]:
        """Return the pairs; `old` and `new` then contain the definitions without a counterpart."""
        if self._maps.modules or self._maps.renames:
            self._by_name(self._maps.target, same_shape=True)
        self._by_name(lambda each: each.qualified_name, same_shape=True)
        for last in (False,) * _ROUNDS + (True,):
            self._by_shape("shape", last=last)
        self._by_name(self._maps.target, same_shape=False)
        self._by_shape("opaque", last=True)
        self._by_name(lambda each: each.names[0], lambda each: each.names[0], same_shape=False)
        self._statements()
        return self.pairs

    def _take(self, pairs: list[Pair]) -> None:
        old, new = {id(each.old) for each in pairs}, {id(each.new) for each in pairs}
        self.old = [each for each in self.old if id(each) not in old]
        self.new = [each for each in self.new if id(each) not in new]
        self.pairs += pairs
        for pair in pairs:
            self.modules[pair.old.module, pair.new.module] += 1
            if pair.old.shape == pair.new.shape:
                for old_token, new_token in zip(pair.old.tokens, pair.new.tokens, strict=True):
                    if old_token.kind == new_token.kind == "global":
                        self._votes[old_token.value, new_token.value] += 1

    def _by_name(self, key: Any, new_key: Any = lambda each: each.qualified_name, *, same_shape: bool) -> None:
        groups: dict[str, list[Definition]] = defaultdict(list)
        for each in self.new:
            if each.names:
                groups[new_key(each)].append(each)
        pairs: list[Pair] = []
        for each in self.old:
            candidates = groups.get(key(each), []) if each.names else []
            match = next((new for new in candidates if not same_shape or new.shape == each.shape), None)
            if match is not None:
                candidates.remove(match)
                pairs.append(Pair(each, match))
        self._take(pairs)

    def _by_shape(self, attribute: str, *, last: bool) -> None:
        groups: dict[int, tuple[list[Definition], list[Definition]]] = defaultdict(lambda: ([], []))
        for index, side in enumerate((self.old, self.new)):
            for each in side:
                groups[getattr(each, attribute)][index].append(each)
        pairs: list[Pair] = []
        for olds, news in groups.values():
            pairs += self._best(olds, news, last=last)
        self._take(pairs)

    def _best(self, olds: list[Definition], news: list[Definition], *, last: bool) -> Iterator[Pair]:
        """Yield the pairs of one shape, the best first; unless it is the last round, only those without a rival."""
        scores = [(self._score(a, b), -abs(i - j), -i, -j) for i, a in enumerate(olds) for j, b in enumerate(news)]
        scores.sort(reverse=True)
        rivals = Counter((score, -i) for score, _, i, _ in scores) + Counter((score, j) for score, _, _, j in scores)
        done: tuple[set[int], set[int]] = (set(), set())
        for score, _, i, j in scores:
            if i in done[0] or j in done[1]:
                continue
            if last or (rivals[score, -i] <= 1 and rivals[score, j] <= 1):
                yield Pair(olds[-i], news[-j])
            done[0].add(i)
            done[1].add(j)

    def _score(self, old: Definition, new: Definition) -> float:
        texts = [[token.value for token in each.tokens if token.kind == "text"] for each in (old, new)]
        names = [{token.value for token in each.tokens if token.kind == "attribute"} for each in (old, new)]
        return (
            5 * (self._votes[old.qualified_name, new.qualified_name] > 0)
            + 4 * (old.names == new.names)
            + 3 * (self.modules[old.module, new.module] > 0)
            + 2 * (texts[0] == texts[1])
            + len(names[0] & names[1]) / (len(names[0] | names[1]) or 1)
        )

    def _statements(self) -> None:
        """Match statements that bind no name, if other definitions of their modules match."""
        pairs: list[Pair] = []
        used: set[int] = set()
        for old in self.old:
            for new in self.new:
                if not (old.names or new.names) and self.modules[old.module, new.module] and id(new) not in used:
                    used.add(id(new))
                    pairs.append(Pair(old, new))
                    break
        self._take(pairs)


@dataclass
class Result:
    """The comparison of one pair."""

    pair: Pair
    reason: str = ""
    has_renames: bool = False
    texts: list[tuple[str, str]] = field(default_factory=list)
    other_values: bool = False
    locals: dict[Any, Any] = field(default_factory=dict)


@dataclass
class Report:
    """The comparison of two sides."""

    results: list[Result] = field(default_factory=list)
    additions: list[Definition] = field(default_factory=list)
    removals: list[Definition] = field(default_factory=list)
    merges: list[tuple[Definition, Definition]] = field(default_factory=list)
    globals: dict[str, str] = field(default_factory=dict)
    uses: dict[str, dict[str, Counter[str]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def different(self) -> list[Result]:
        """Return the pairs that differ in structure."""
        return [each for each in self.results if each.reason]

    def ok(self, *, texts: bool = False, text_values: bool = False) -> bool:
        """Return whether only names and module paths changed, and texts only if `texts` allows it."""
        if self.additions or self.removals or self.different():
            return False
        return all((texts or not each.texts) and (text_values or not each.other_values) for each in self.results)


class Comparison:
    """Compare all pairs of two sides."""

    def __init__(self, old: Side, new: Side, maps: Maps) -> None:
        matcher = Matcher(old, new, maps)
        self._maps = maps
        self._old, self._new = old, new
        self._targets: dict[str, str] = {}
        self._definition_renames: dict[str, set[tuple[str, str]]] = {
            "attribute": set(maps.attributes),
            "keyword": set(),
        }
        self._firsts: dict[tuple[str, str, str], Result] = {}
        self.report = Report(uses={"attribute": defaultdict(Counter), "keyword": defaultdict(Counter)})
        pairs = matcher.match()
        for pair in pairs:
            self._targets |= _bound_pairs(pair)
        self._merge_duplicates(matcher)
        self.report.results = [self._compare(pair) for pair in pairs]
        self._check_uses()
        self.report.globals = {name: target for name, target in self._targets.items() if name != target}
        self._note_sets()

    def _merge_duplicates(self, matcher: Matcher) -> None:
        """Accept that an old definition is missing if the merged module has an equal one of the same name."""
        self.report.additions = matcher.new
        for old in matcher.old:
            twins = [pair for pair in matcher.pairs if pair.old.names == old.names and _equal(pair.old, old)]
            homes = {new for (module, new) in matcher.modules if module == old.module}
            twin = next((pair for pair in twins if pair.new.module in homes), None)
            if twin is None or not old.names:
                self.report.removals.append(old)
            else:
                self.report.merges.append((old, twin.new))
                self._targets[old.qualified_name] = twin.new.qualified_name

    def _compare(self, pair: Pair) -> Result:
        result = Result(pair)
        old, new = pair.old.tokens, pair.new.tokens
        if pair.old.shape != pair.new.shape and pair.old.opaque == pair.new.opaque:
            result.other_values = True
            old, new = without_texts(old), without_texts(new)
        backwards: dict[Any, Any] = {}
        for old_token, new_token in zip(old, new, strict=False):
            reason = self._step(old_token, new_token, result, backwards)
            if reason:
                result.reason = reason
                return result
        if len(old) != len(new):
            result.reason = "one has more statements than the other"
        return result

    def _step(self, old: Token, new: Token, result: Result, backwards: dict[Any, Any]) -> str:
        if {old.kind, new.kind} == {"field", "attribute"}:
            old, new = old._replace(kind="attribute"), new._replace(kind="attribute")
        if old.kind != new.kind:
            return f"{_describe(old)} became {_describe(new)}"
        if old.kind in {"local", "parameter"}:
            return self._local(old, new, result, backwards)
        if old.kind == "global":
            return self._global(old, new, result)
        if old.kind == "text":
            self._text(old, new, result)
        elif old.kind in {"attribute", "field", "keyword"}:
            return self._use(old, new, result)
        elif old != new:
            return f"{_describe(old)} became {_describe(new)}"
        return ""

    def _local(self, old: Token, new: Token, result: Result, backwards: dict[Any, Any]) -> str:
        target = result.locals.setdefault(old.value, new.value)
        source = backwards.setdefault(new.value, old.value)
        if target != new.value or source != old.value:
            return f"variable {old.value[1]} became {new.value[1]}, but {old.value[1]} is {target[1]} elsewhere"
        if old.value[1] != new.value[1]:
            result.has_renames = True
            if old.kind == "parameter":
                self._definition_renames["keyword"].add((old.value[1], new.value[1]))
        return ""

    def _global(self, old: Token, new: Token, result: Result) -> str:
        target = self._targets.get(old.value)
        if target is None:  # a module, or a name that is defined in no statement
            target = new.value if old.value in self._old.modules and new.value in self._new.modules else old.value
        if target != new.value:
            return f"refers to {new.value} instead of {target} (was {old.value})"
        result.has_renames |= old.value.rpartition(".")[2] != new.value.rpartition(".")[2]
        return ""

    def _text(self, old: Token, new: Token, result: Result) -> None:
        if old.value == new.value:
            return
        if None not in {old.extra, new.extra} and (
            self._targets.get(old.extra) == new.extra or self._is_moved_module(old, new)
        ):
            result.has_renames = True
        else:
            result.texts.append((old.value, new.value))

    def _is_moved_module(self, old_text: Token, new_text: Token) -> bool:
        if old_text.extra not in self._old.modules or new_text.extra not in self._new.modules:
            return False
        target = self._maps.modules.get(old_text.extra)
        homes = {
            new_name.rpartition(".")[0]
            for old_name, new_name in self._targets.items()
            if old_name.rpartition(".")[0] == old_text.extra
        }
        return new_text.extra == target if target else new_text.extra in homes

    def _use(self, old: Token, new: Token, result: Result) -> str:
        if None not in {old.extra, new.extra} and old.extra != new.extra:
            return f"keyword {old.value} became {new.value}, which is another parameter"
        kind = "keyword" if old.kind == "keyword" else "attribute"
        self.report.uses[kind][old.value][new.value] += 1
        if old.value != new.value:
            result.has_renames = True
            if old.kind == "field":
                self._definition_renames["attribute"].add((old.value, new.value))
            self._firsts.setdefault((kind, old.value, new.value), result)
        return ""

    def _check_uses(self) -> None:
        """Report an attribute or keyword with a new name that no class and no parameter defines."""
        for (kind, old, new), result in self._firsts.items():
            definition_renames = self._definition_renames["attribute"] | (
                self._definition_renames["keyword"] if kind == "keyword" else set()
            )
            if (old, new) not in definition_renames and not result.reason:
                result.reason = f"{kind} {old} became {new}, but no definition has that rename"

    def _note_sets(self) -> None:
        for title, old, new in (
            ("imported libraries", self._old.libraries, self._new.libraries),
            ("names in __all__", {self._export_target(each) for each in self._old.exports}, self._new.exports),
        ):
            self.report.notes += [f"{title}: - {each}" for each in sorted(old - new)]
            self.report.notes += [f"{title}: + {each}" for each in sorted(new - old)]

    def _export_target(self, name: str) -> str:
        module, _, bare = name.rpartition(".")
        return self._targets.get(name, f"{self._maps.modules.get(module, module)}.{bare}")


def _bound_pairs(pair: Pair) -> dict[str, str]:
    """Return the new global for each old global that a pair binds, matched by the order of binding."""
    old = [f"{pair.old.module}.{name}" for name in pair.old.names]
    if len(old) == len(pair.new.names) == 1:
        return {old[0]: f"{pair.new.module}.{pair.new.names[0]}"}
    names = {f"{pair.new.module}.{name}" for name in pair.new.names}
    targets: dict[str, str] = {}
    for old_token, new_token in zip(pair.old.tokens, pair.new.tokens, strict=False):
        if old_token.kind == new_token.kind == "global" and old_token.value in old and new_token.value in names:
            targets.setdefault(old_token.value, new_token.value)
    return targets


def _equal(one: Definition, other: Definition) -> bool:
    own = (one.qualified_name, other.qualified_name)
    return [t for t in one.tokens if t.value not in own] == [t for t in other.tokens if t.value not in own]


def _describe(token: Token) -> str:
    value = token.value[1] if token.kind in {"local", "parameter"} else token.value
    return f"{token.kind} {value}"


def compare(old: Side, new: Side, maps: Maps | None = None) -> Report:
    """Compare two sides and return the differences."""
    return Comparison(old, new, maps or Maps()).report


# --- printing -----------------------------------------------------------------------------------------------------


class _NewNames(ast.NodeTransformer):
    """Remove docstrings from a definition and use the names of the new tree, so that a diff shows real differences."""

    def __init__(self, names: dict[str, str], attributes: dict[str, str]) -> None:
        self._names = names
        self._attributes = attributes

    def visit(self, node: ast.AST) -> Any:
        self.generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list):
                setattr(node, name, effective_statements(body) or ([ast.Pass()] if name == "body" else []))
        for name in ("id", "arg", "name", "attr"):
            value = getattr(node, name, None)
            if isinstance(value, str):
                table = self._attributes if name == "attr" else self._names
                setattr(node, name, table.get(value, value))
        return node


def _source(node: ast.stmt, names: dict[str, str], attributes: dict[str, str]) -> list[str]:
    copy = ast.parse(ast.unparse(node)).body[0]
    return ast.unparse(ast.fix_missing_locations(_NewNames(names, attributes).visit(copy))).splitlines()


def _diff(report: Report, result: Result) -> list[str]:
    names = {old.rpartition(".")[2]: new.rpartition(".")[2] for old, new in report.globals.items()}
    names |= {old[1]: new[1] for old, new in result.locals.items()}
    attributes = {old: next(iter(new)) for old, new in report.uses["attribute"].items() if len(new) == 1}
    pair = result.pair
    new = _source(pair.new.node, {}, {})
    for old in (_source(pair.old.node, names, attributes), _source(pair.old.node, {}, {})):
        lines = list(difflib.unified_diff(old, new, pair.old.qualified_name, pair.new.qualified_name, lineterm="", n=2))
        if lines:  # none if two names became one: then the second diff shows the old names
            return lines
    return ["(same text: a name refers to another definition)"]


def _summary(report: Report) -> Iterator[str]:
    same_structure = [each for each in report.results if not each.reason]
    texts = [each for each in same_structure if each.texts or each.other_values]
    with_renames = [each for each in same_structure if each.has_renames and each not in texts]
    move_count = sum(each.pair.old.module != each.pair.new.module for each in report.results)
    yield f"{len(report.results)} definitions matched, {move_count} of them in another module"
    yield f"{len(same_structure) - len(texts) - len(with_renames)} equal"
    yield f"{len(with_renames)} equal except for names"
    yield f"{sum(not each.other_values for each in texts)} with other texts"
    yield f"{sum(each.other_values for each in texts)} with other values in texts"
    yield f"{len(report.merges)} duplicates merged"
    yield f"{len(report.different())} structurally different"
    yield f"{len(report.additions)} added"
    yield f"{len(report.removals)} removed"


def _renames(report: Report) -> Iterator[str]:
    for old, new in sorted(report.globals.items()):
        if old.rpartition(".")[2] != new.rpartition(".")[2]:
            yield f"global {old} -> {new}"
    for kind, uses in report.uses.items():
        for old, targets in sorted(uses.items()):
            if set(targets) != {old}:
                counts = ", ".join(f"{new} ({count})" for new, count in targets.most_common())
                yield f"{kind} {old} -> {counts}" + ("   several targets" if len(targets) > 1 else "")


def _text_changes(report: Report) -> Iterator[str]:
    lines: list[tuple[bool, str]] = []
    for result in report.results:
        for old, new in [*result.texts, *_docstrings(result.pair)]:
            value = not (" " in old.strip() and " " in new.strip())
            flag = value or set(_FIELDS.findall(old)) != set(_FIELDS.findall(new))
            lines.append(
                (not flag, f"{'! ' if flag else '  '}{result.pair.new.qualified_name}\n    {old!r}\n    {new!r}")
            )
    return (line for _, line in sorted(lines, key=lambda each: each[0]))


def _docstrings(pair: Pair) -> Iterator[tuple[str, str]]:
    """Yield changed class docstrings with fields in braces: the messages of errors."""
    if isinstance(pair.old.node, ast.ClassDef) and isinstance(pair.new.node, ast.ClassDef):
        old, new = (" ".join((ast.get_docstring(each.node) or "").split()) for each in pair)  # type: ignore[arg-type]
        if old != new and (_FIELDS.search(old) or _FIELDS.search(new)):
            yield old, new


def _print(report: Report, *, texts_report: bool) -> None:
    for line in _summary(report):
        print(line)
    sections = [
        ("Renames", list(_renames(report))),
        ("Imports and exports", report.notes),
        ("Merged duplicates", [f"{old.qualified_name} -> {new.qualified_name}" for old, new in report.merges]),
        ("Added", [each.qualified_name for each in report.additions]),
        ("Removed", [each.qualified_name for each in report.removals]),
        ("Texts", list(_text_changes(report)) if texts_report else []),
    ]
    for result in report.results:
        if result.reason or result.other_values:
            title = f"{result.pair.old.qualified_name}: {result.reason or 'other values in a text'}"
            sections.append((title, _diff(report, result)))
    for title, lines in sections:
        if lines:
            print(f"\n{title}", *lines, sep="\n")


def main(arguments: list[str] | None = None) -> int:
    """Run the comparison from the command line and return the exit status."""
    parser = argparse.ArgumentParser(description="Show that only names, module paths and texts changed.")
    parser.add_argument("old", help="a revision or a directory")
    parser.add_argument("new", nargs="?", help="a revision or a directory; the working tree if omitted")
    parser.add_argument("--package", action="append", help="directory of a package (default: src/recollect)")
    parser.add_argument("--map", action="append", default=[], help="a TOML file with modules, renames and attributes")
    parser.add_argument("--texts", action="store_true", help="strings may change")
    parser.add_argument("--text-values", action="store_true", help="the values that f-strings format may change too")
    parser.add_argument("--texts-report", action="store_true", help="list each changed string")
    options = parser.parse_args(arguments)
    packages = options.package or ["src/recollect"]
    gc.disable()  # millions of tokens stay alive until the end; searching them for cycles doubles the run time
    report = compare(load(options.old, packages), load(options.new, packages), Maps.read(options.map))
    _print(report, texts_report=options.texts_report)
    return 0 if report.ok(texts=options.texts, text_values=options.text_values) else 1


if __name__ == "__main__":
    sys.exit(main())
