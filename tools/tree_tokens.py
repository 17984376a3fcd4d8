"""The definitions of a package as flat lists of tokens with resolved names, for compare_trees.py."""

from __future__ import annotations

import ast
import builtins
import io
import pathlib
import re
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeGuard

_BUILTINS = frozenset(dir(builtins)) | {"__file__", "__name__", "__doc__", "__path__", "__spec__", "__package__"}
_BY_NAME = frozenset({"getattr", "hasattr", "setattr", "delattr"})
_SKIPPED_FIELDS = frozenset({"ctx", "type_comment", "kind", "type_ignores"})
_LOAD = ast.Load()
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)

Parts = tuple[str, ...]


class Token(NamedTuple):
    """One step of the walk over a definition: a node, a constant, or an identifier with its kind."""

    kind: str
    value: Any
    extra: Any = None


# --- one side: modules, their names and definitions ---------------------------------------------------------------


@dataclass
class Module:
    """A module: its tree, the names that it binds, and the targets of its imports."""

    name: str
    package: bool
    tree: ast.Module
    walrus: bool
    bound: set[str] = field(default_factory=set)
    imports: dict[str, Parts] = field(default_factory=dict)


@dataclass
class Definition:
    """A top-level statement, the names that it binds, and its tokens."""

    module: str
    names: tuple[str, ...]
    order: int
    node: ast.stmt
    tokens: list[Token] = field(default_factory=list)
    shape: int = 0
    opaque: int = 0

    @property
    def qualified_name(self) -> str:
        """Return the full name of the first name that is bound, or the index of a statement that binds none."""
        return f"{self.module}.{self.names[0]}" if self.names else f"{self.module}:{self.order}"


class Side:
    """All modules of the compared packages in one revision."""

    def __init__(self, sources: dict[str, tuple[str, bool]]) -> None:
        self.modules = {
            name: Module(name, package, ast.parse(text), ":=" in text)
            for name, (text, package) in sorted(sources.items())
        }
        self.roots = {name.partition(".")[0] for name in self.modules}
        self.exports: set[str] = set()
        self.libraries: set[str] = set()
        for module in self.modules.values():
            self._read_names(module)
        self.parameters = self._read_parameters()
        self.definitions = [each for module in self.modules.values() for each in self._definitions(module)]

    def _read_names(self, module: Module) -> None:
        names = _Bound(module)
        names.read(module.tree.body)
        module.bound = names.names - {"__all__"}
        module.imports = {name: parts for name, parts in names.imports.items() if name not in module.bound}
        everywhere = _Bound(module, deep=True)
        everywhere.read(module.tree.body)
        for libraries, suffix in ((names.libraries, ""), (everywhere.libraries - names.libraries, " (in a function)")):
            self.libraries |= {each + suffix for each in libraries if each.partition(".")[0] not in self.roots}
        for node in module.tree.body:
            if _is_all(node):
                self.exports |= {
                    f"{module.name}.{each.value}" for each in ast.walk(node) if isinstance(each, ast.Constant)
                }

    def _read_parameters(self) -> dict[str, list[str]]:
        parameters: dict[str, list[str]] = {}
        for module in self.modules.values():
            for node in module.tree.body:
                if isinstance(node, _FUNCTIONS):
                    arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
                    parameters[f"{module.name}.{node.name}"] = [each.arg for each in arguments]
        return parameters

    def _definitions(self, module: Module) -> Iterator[Definition]:
        for order, node in enumerate(effective_statements(module.tree.body)):
            if _is_all(node):
                continue
            names = _Bound(module)
            names.read([node])
            bound = (node.name,) if isinstance(node, (*_FUNCTIONS, ast.ClassDef)) else tuple(sorted(names.names))
            definition = Definition(module.name, bound, order, node)
            definition.tokens = Tokenizer(self, module).tokens(node)
            definition.shape = hash(tuple(_shape(definition.tokens)))
            definition.opaque = hash(tuple(_shape(without_texts(definition.tokens))))
            yield definition

    def resolve(self, parts: Parts, previous: frozenset[Parts] = frozenset()) -> tuple[Token, Parts]:
        """Return the target of a dotted path, and the attributes that remain."""
        if parts[0] not in self.roots or parts in previous:
            return Token("external", ".".join(parts)), ()
        module, rest = parts[0], parts[1:]
        while rest and module in self.modules:
            current, name = self.modules[module], rest[0]
            if name in current.bound:
                return Token("global", f"{module}.{name}"), rest[1:]
            target = current.imports.get(name)
            if target is not None and target != (*module.split("."), name):
                return self.resolve(target + rest[1:], previous | {parts})
            if f"{module}.{name}" not in self.modules:
                break
            module, rest = f"{module}.{name}", rest[1:]
        return Token("global", module), rest

    def reference(self, text: str) -> str | None:
        """Return the global that a string such as "package.module:name" names, or None."""
        if not re.fullmatch(r"\w+(\.\w+)+(:\w+)?", text) or text.partition(".")[0] not in self.roots:
            return None
        token, rest = self.resolve(tuple(text.replace(":", ".").split(".")))
        return None if rest else token.value


class _Bound:
    """The names that statements bind in their own scope, and the targets of their imports."""

    def __init__(self, module: Module, *, deep: bool = False) -> None:
        self.names: set[str] = set()
        self.imports: dict[str, Parts] = {}
        self.libraries: set[str] = set()
        self.declarations: dict[str, str] = {}
        self._module = tuple(module.name.split("."))
        self._package = module.package
        self._walrus = module.walrus
        self._deep = deep

    def read(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self._read(node)

    def _read(self, node: ast.AST) -> None:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            self._import(node)
        elif isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            self.names.add(node.name)
            self.read(node.body if self._deep else ())
        elif isinstance(node, ast.Lambda):
            pass
        elif isinstance(node, _COMPREHENSIONS):
            self.names |= {each.target.id for each in ast.walk(node) if isinstance(each, ast.NamedExpr)}
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            self.declarations |= dict.fromkeys(node.names, type(node).__name__)
        elif self._walrus or not isinstance(node, ast.expr) or not isinstance(getattr(node, "ctx", _LOAD), ast.Load):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                self.names.add(node.id)
            elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
                self.names.add(node.name)
            elif isinstance(node, ast.MatchMapping) and node.rest:
                self.names.add(node.rest)
            self.read(ast.iter_child_nodes(node))

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.Import):
            for each in node.names:
                parts = tuple(each.name.split("."))
                self.imports[each.asname or parts[0]] = parts if each.asname else parts[:1]
                self.libraries.add(each.name)
            return
        start: Parts = ()
        if node.level:
            start = self._module[: len(self._module) - node.level + self._package]
        start += tuple(node.module.split(".")) if node.module else ()
        self.libraries.add(".".join(start))
        if start != ("__future__",):
            self.imports |= {each.asname or each.name: (*start, each.name) for each in node.names}


def _is_all(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__"


def effective_statements(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements that have an effect other than an import."""
    return [each for each in body if not _is_empty(each)]


def _is_empty(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        return all(map(_is_empty, [*node.body, *node.orelse]))
    return isinstance(node, (ast.Import, ast.ImportFrom, ast.Pass))


# --- a definition as tokens ---------------------------------------------------------------------------------------


class Scope:
    """A function, class or comprehension: the names that it binds itself."""

    def __init__(self, kind: str, number: int, parent: Scope | None, bound: _Bound | None = None) -> None:
        self.kind = kind
        self.number = number
        self.parent = parent
        self.names = set(bound.names) if bound else set[str]()
        self.imports = bound.imports if bound else {}
        self.declarations = bound.declarations if bound else {}


class Tokenizer:
    """Write one definition as a flat list of tokens; equal lists mean equal trees."""

    def __init__(self, side: Side, module: Module) -> None:
        self._side = side
        self._module = module
        self._out: list[Token] = []
        self._scopes = 0
        self._annotation = False

    def tokens(self, node: ast.stmt) -> list[Token]:
        """Return the tokens of a top-level statement."""
        self._visit(node, None)
        return self._out

    def _emit(self, kind: str, value: Any = None, extra: Any = None) -> None:
        self._out.append(Token(kind, value, extra))

    def _visit(self, node: Any, scope: Scope | None) -> None:
        if not isinstance(node, ast.AST):
            self._emit("constant", repr(node))
            return
        method = getattr(self, f"_visit_{type(node).__name__.lower()}", None)
        if method is not None:
            method(node, scope)
            return
        self._emit("node", type(node).__name__)
        for name, value in ast.iter_fields(node):
            if name not in _SKIPPED_FIELDS:
                self._value(value, scope)

    def _value(self, value: Any, scope: Scope | None) -> None:
        if isinstance(value, list):
            if value and isinstance(value[0], ast.stmt):
                value = effective_statements(value)
            self._emit("list", len(value))
            for each in value:
                self._visit(each, scope)
        else:
            self._visit(value, scope)

    # Names.

    def _lookup(self, name: str, scope: Scope | None) -> Token | Parts:
        """Return the token of a name, or the dotted path if an import binds it."""
        first, forced_global = True, False
        while scope is not None and not forced_global:
            declaration = scope.declarations.get(name)
            if declaration == "Global":
                forced_global = True
            elif declaration is None and (first or scope.kind != "class"):
                if name in scope.names:
                    return Token("attribute", name) if scope.kind == "class" else Token("local", (scope.number, name))
                if name in scope.imports:
                    return scope.imports[name]
            first = first and scope.kind == "comprehension"
            scope = scope.parent
        if name in self._module.bound:
            return Token("global", f"{self._module.name}.{name}")
        if name in self._module.imports:
            return self._module.imports[name]
        return Token("builtin" if name in _BUILTINS else "free", name)

    def _chain(self, node: ast.expr, scope: Scope | None) -> tuple[Token, Parts] | None:
        """Resolve `a.b.c` if `a` is a name: its token and the attributes that remain."""
        attributes: list[str] = []
        while isinstance(node, ast.Attribute):
            attributes.insert(0, node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        target = self._lookup(node.id, scope)
        if isinstance(target, Token):
            return target, tuple(attributes)
        return self._side.resolve(target + tuple(attributes))

    def _bind(self, name: str, scope: Scope | None) -> None:
        target = self._lookup(name, scope)
        token = target if isinstance(target, Token) else Token("free", name)
        self._out.append(token._replace(kind="field") if token.kind == "attribute" else token)

    def _visit_name(self, node: ast.Name, scope: Scope | None) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._bind(node.id, scope)
            return
        chain = self._chain(node, scope)
        assert chain is not None
        self._emit_chain(*chain)

    def _emit_chain(self, base: Token, attributes: Parts, last: str = "attribute") -> None:
        self._out += [Token("node", "Attribute")] * len(attributes)
        self._out.append(base)
        self._out += [Token("attribute", each) for each in attributes[:-1]]
        if attributes:
            self._emit(last, attributes[-1])

    def _visit_attribute(self, node: ast.Attribute, scope: Scope | None) -> None:
        chain = self._chain(node, scope)
        own = isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"} and isinstance(node.ctx, ast.Store)
        if chain is not None:
            self._emit_chain(*chain, "field" if own else "attribute")
            return
        self._emit("node", "Attribute")
        self._visit(node.value, scope)
        self._emit("attribute", node.attr)

    def _visit_global(self, node: ast.Global | ast.Nonlocal, scope: Scope | None) -> None:
        self._emit("node", type(node).__name__)
        for name in node.names:
            self._bind(name, scope if isinstance(node, ast.Global) else scope and scope.parent)

    _visit_nonlocal = _visit_global

    def _visit_excepthandler(self, node: ast.ExceptHandler, scope: Scope | None) -> None:
        self._emit("node", "ExceptHandler")
        self._visit(node.type, scope)
        self._optional(node.name, scope)
        self._value(node.body, scope)

    def _optional(self, name: str | None, scope: Scope | None) -> None:
        if name is None:
            self._emit("constant", None)
        else:
            self._bind(name, scope)

    def _visit_matchas(self, node: ast.MatchAs, scope: Scope | None) -> None:
        self._emit("node", "MatchAs")
        self._visit(node.pattern, scope)
        self._optional(node.name, scope)

    def _visit_matchstar(self, node: ast.MatchStar, scope: Scope | None) -> None:
        self._emit("node", "MatchStar")
        self._optional(node.name, scope)

    def _visit_matchmapping(self, node: ast.MatchMapping, scope: Scope | None) -> None:
        self._emit("node", "MatchMapping")
        self._value(node.keys, scope)
        self._value(node.patterns, scope)
        self._optional(node.rest, scope)

    def _visit_matchclass(self, node: ast.MatchClass, scope: Scope | None) -> None:
        self._emit("node", "MatchClass")
        self._visit(node.cls, scope)
        self._value(node.patterns, scope)
        for name in node.kwd_attrs:
            self._emit("attribute", name)
        self._value(node.kwd_patterns, scope)

    # Texts and annotations.

    def _visit_constant(self, node: ast.Constant, scope: Scope | None) -> None:
        if not isinstance(node.value, str):
            self._emit("constant", repr(node.value))
        elif not self._annotation or not self._quoted(node.value, scope):
            self._emit("node", "Text")
            self._emit("list", 0)
            self._emit("text", node.value, self._side.reference(node.value))

    def _quoted(self, text: str, scope: Scope | None) -> bool:
        """Visit the expression in a quoted annotation; return False if the text is not an expression."""
        try:
            tree = ast.parse(text, mode="eval")
        except SyntaxError:
            return False
        self._visit(tree.body, scope)
        return True

    def _visit_joinedstr(self, node: ast.JoinedStr, scope: Scope | None) -> None:
        """Emit one literal before and after each value, so that the positions do not depend on the texts."""
        values = [each for each in node.values if isinstance(each, ast.FormattedValue)]
        self._emit("node", "Text")
        self._emit("list", len(values))
        literal = ""
        for each in node.values:
            if isinstance(each, ast.FormattedValue):
                self._emit("text", literal)
                literal = ""
                self._visit(each.value, scope)
                self._emit("constant", repr(each.conversion))
                self._specification(each.format_spec, scope)
            else:
                literal += str(each.value) if isinstance(each, ast.Constant) else ""
        self._emit("text", literal)

    def _specification(self, node: ast.expr | None, scope: Scope | None) -> None:
        for each in node.values if isinstance(node, ast.JoinedStr) else ():
            if isinstance(each, ast.Constant):
                self._emit("constant", repr(each.value))
            else:
                self._visit(each, scope)
        self._emit("node", "end of format")

    def _walk_annotation(self, node: ast.expr | None, scope: Scope | None) -> None:
        before, self._annotation = self._annotation, True
        self._visit(node, scope)
        self._annotation = before

    def _visit_subscript(self, node: ast.Subscript, scope: Scope | None) -> None:
        chain = self._chain(node.value, scope)
        literal = chain is not None and str(chain[0].value).endswith("Literal")
        before, self._annotation = self._annotation, self._annotation and not literal
        self._emit("node", "Subscript")
        self._visit(node.value, scope)
        self._visit(node.slice, scope)
        self._annotation = before

    def _visit_annassign(self, node: ast.AnnAssign, scope: Scope | None) -> None:
        self._emit("node", "AnnAssign")
        self._visit(node.target, scope)
        self._walk_annotation(node.annotation, scope)
        self._visit(node.value, scope)

    def _visit_assign(self, node: ast.Assign, scope: Scope | None) -> None:
        self._emit("node", "Assign")
        self._value(node.targets, scope)
        target = node.targets[0]
        if scope is not None and scope.kind == "class" and isinstance(target, ast.Name) and target.id == "__slots__":
            for each in ast.walk(node.value):
                if isinstance(each, ast.Constant):
                    self._emit("field", each.value)
        else:
            self._visit(node.value, scope)

    # Calls.

    def _visit_call(self, node: ast.Call, scope: Scope | None) -> None:
        self._emit("node", "Call")
        chain = self._chain(node.func, scope)
        function = chain[0] if chain is not None and not chain[1] else Token("none", None)
        self._visit(node.func, scope)
        self._emit("list", len(node.args))
        for position, each in enumerate(node.args):
            if function.value == "typing.cast" and position == 0:
                self._walk_annotation(each, scope)
            elif position == 1 and function.kind == "builtin" and function.value in _BY_NAME and _is_text(each):
                self._emit("attribute", each.value)
            else:
                self._visit(each, scope)
        parameters = self._side.parameters.get(function.value, []) if function.kind == "global" else []
        self._keywords(node.keywords, parameters, scope)

    def _keywords(self, keywords: list[ast.keyword], parameters: list[str], scope: Scope | None) -> None:
        self._emit("list", len(keywords))
        for each in keywords:
            position = parameters.index(each.arg) if each.arg in parameters else None
            self._emit("keyword", each.arg or "**", position)
            self._visit(each.value, scope)

    # Scopes.

    def _scope(self, kind: str, parent: Scope | None, nodes: Iterable[ast.AST | None]) -> Scope:
        bound = _Bound(self._module)
        bound.read(nodes)
        self._scopes += 1
        return Scope(kind, self._scopes, parent, bound)

    def _visit_functiondef(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope | None) -> None:
        self._emit("node", type(node).__name__)
        self._bind(node.name, scope)
        self._value(node.decorator_list, scope)
        inner = self._scope("function", scope, node.body)
        self._parameters(node.args, scope, inner)
        self._walk_annotation(node.returns, scope)
        self._value(node.body, inner)

    _visit_asyncfunctiondef = _visit_functiondef

    def _visit_lambda(self, node: ast.Lambda, scope: Scope | None) -> None:
        self._emit("node", "Lambda")
        inner = self._scope("function", scope, [node.body])
        self._parameters(node.args, scope, inner)
        self._visit(node.body, inner)

    def _parameters(self, arguments: ast.arguments, outer: Scope | None, inner: Scope) -> None:
        groups = (arguments.posonlyargs, arguments.args, [arguments.vararg], arguments.kwonlyargs, [arguments.kwarg])
        for group in groups:
            present = [each for each in group if each is not None]
            self._emit("list", len(present))
            for each in present:
                inner.names.add(each.arg)
                self._emit("parameter", (inner.number, each.arg))
                self._walk_annotation(each.annotation, outer)
        self._value(arguments.defaults, outer)
        self._value(arguments.kw_defaults, outer)

    def _visit_classdef(self, node: ast.ClassDef, scope: Scope | None) -> None:
        self._emit("node", "ClassDef")
        self._bind(node.name, scope)
        self._value(node.decorator_list, scope)
        self._value(node.bases, scope)
        self._keywords(node.keywords, [], scope)
        self._value(node.body, self._scope("class", scope, node.body))

    def _visit_listcomp(self, node: ast.ListComp | ast.DictComp, scope: Scope | None) -> None:
        self._emit("node", type(node).__name__)
        self._emit("list", len(node.generators))
        inner = self._scope("comprehension", scope, [each.target for each in node.generators])
        for position, each in enumerate(node.generators):
            self._visit(each.iter, inner if position else scope)
            self._visit(each.target, inner)
            self._value(each.ifs, inner)
            self._emit("constant", repr(each.is_async))
        for part in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
            self._visit(part, inner)

    _visit_setcomp = _visit_generatorexp = _visit_dictcomp = _visit_listcomp


def _is_text(node: ast.expr) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _shape(tokens: Iterable[Token]) -> Iterator[Any]:
    """Yield the parts that renames and new texts do not change: structure, constants, and the identity of locals."""
    numbers: dict[Any, int] = {}
    for token in tokens:
        if token.kind in {"local", "parameter"}:
            yield numbers.setdefault(token.value, len(numbers))
        elif token.kind in {"global", "attribute", "field", "keyword", "text"}:
            yield token.kind[:4] if token.kind != "field" else "attr"
        else:
            yield token[:2]


def without_texts(tokens: list[Token]) -> list[Token]:
    """Return the tokens with each text as one token, without the values that an f-string formats."""
    out: list[Token] = []
    index = 0
    while index < len(tokens):
        out.append(tokens[index])
        index = _text_end(tokens, index) if tokens[index] == ("node", "Text", None) else index + 1
    return out


def _text_end(tokens: list[Token], start: int) -> int:
    """Return the index after the text that starts at `start`; a text has one more literal than values."""
    remaining, index = tokens[start + 1].value + 1, start + 2
    while remaining:
        if tokens[index] == ("node", "Text", None):
            index = _text_end(tokens, index)
            continue
        remaining -= tokens[index].kind == "text"
        index += 1
    return index


# --- reading ------------------------------------------------------------------------------------------------------


def load(source: str | None, packages: list[str], root: str = ".") -> Side:
    """Read packages from a revision, a directory, or (None) the working tree under a root."""
    if source is None or pathlib.Path(source).is_dir():
        files = dict(_files_on_disk(pathlib.Path(source or root), packages))
    else:
        files = dict(_files_of_revision(source, packages, root))
    sources: dict[str, tuple[str, bool]] = {}
    for path, text in files.items():
        package = next(each for each in packages if path.startswith(each.rstrip("/") + "/"))
        parts = pathlib.PurePosixPath(path).relative_to(pathlib.PurePosixPath(package).parent).with_suffix("").parts
        if parts[-1] == "__init__":
            sources[".".join(parts[:-1])] = (text, True)
        else:
            sources[".".join(parts)] = (text, False)
    return Side(sources)


def _files_on_disk(root: pathlib.Path, packages: list[str]) -> Iterator[tuple[str, str]]:
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            yield path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")


def _files_of_revision(revision: str, packages: list[str], root: str) -> Iterator[tuple[str, str]]:
    paths = _git(root, "ls-tree", "--name-only", revision, "--", *packages).decode().split()
    if not paths:
        return
    with tarfile.open(fileobj=io.BytesIO(_git(root, "archive", revision, "--", *paths))) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.name.endswith(".py") else None
            if content is not None:
                yield member.name, content.read().decode()


def _git(root: str, *arguments: str) -> bytes:
    return subprocess.run(["git", "-C", root, *arguments], check=True, capture_output=True).stdout  # noqa: S607
