"""Docstrings, class names, error texts, constants, sizes and indexed rows of Python modules."""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from collections.abc import Iterator

from style_files import HERE, SOURCE, File, Violation
from style_words import banned

MOST_LINES = 800  # of a file
MOST_FUNCTION_LINES = 50  # of a function, from its def to its end, without its docstring
_PROPERTIES = frozenset({"property", "cached_property", "setter"})
_ALIAS = re.compile(r"_?[A-Z][a-z]\w*$")
_CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*$")
_ENDS = (".", "?", "}", "`", "'", ")", ":")  # a sentence, or a value, command or list after it
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_STORAGE = f"{SOURCE}/storage/"


def docstrings(files: list[File]) -> Iterator[Violation]:
    """Find functions whose docstring does not begin with a verb in the imperative."""
    for file in files:
        for node in file.nodes if file.python else ():
            if not isinstance(node, _FUNCTIONS) or node.name.startswith("test_"):
                continue
            text = ast.get_docstring(node, clean=False)
            if not text or _PROPERTIES & {_last_name(each) for each in node.decorator_list}:
                continue
            first = (text.split() or [""])[0].rstrip(".,:;")
            if first.lower() not in _verbs() or not first[:1].isupper():
                yield Violation(file.path, node.lineno, f"{node.name}: {text.strip().splitlines()[0][:80]}")


@functools.cache
def _verbs() -> frozenset[str]:
    return frozenset((HERE / "verbs.txt").read_text(encoding="utf-8").split())


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        return _last_name(node.func)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def classes(files: list[File]) -> Iterator[Violation]:
    """Find classes and type aliases that share their name with another one in the package (not in tests)."""
    places: dict[str, list[Violation]] = defaultdict(list)
    for file in files:
        if file.python and file.path.startswith(SOURCE):
            for node in file.nodes:
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(Violation(file.path, node.lineno, node.name))
            for node in file.tree.body:
                for name in _alias(node):
                    places[name].append(Violation(file.path, node.lineno, name))
    for same in places.values():
        for each in same if len(same) > 1 else ():
            others = ", ".join(f"{other.path}:{other.line}" for other in same if other is not each)
            yield each._replace(text=f"{each.text} is also in {others}")


def _alias(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.AnnAssign) and _last_name(node.annotation) == "TypeAlias":
        yield node.target.id if isinstance(node.target, ast.Name) else ""
    elif isinstance(node, ast.Assign) and isinstance(node.value, (ast.Subscript, ast.BinOp)):
        yield from (each.id for each in node.targets if isinstance(each, ast.Name) and _ALIAS.match(each.id))


def errors(files: list[File]) -> Iterator[Violation]:
    """Find texts of errors that describe a value instead of stating the rule."""
    known = _error_names(files) | set(banned()["errors"]["classes"])
    for file in files:
        for node in file.nodes if file.python else ():
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
                text = _text(node.exc.args[0])
                if text is not None and _last_name(node.exc.func) in known:
                    yield from _judged(file, node.exc.args[0].lineno, text)
        if file.path == f"{SOURCE}/errors.py":
            for node in _classes(file):
                yield from _judged(file, node.lineno + 1, " ".join((ast.get_docstring(node) or "").split()))


def exceptions(files: list[File]) -> Iterator[Violation]:
    """Find public exceptions outside errors.py. One that never leaves its package has `Internal:` in its docstring."""
    known = _error_names(files)
    for file in files:
        if not file.python or not file.path.startswith(SOURCE) or file.path == f"{SOURCE}/errors.py":
            continue
        for node in _classes(file):
            bases = [_last_name(base) for base in node.bases]
            is_private = node.name.startswith("_") or "Internal:" in (ast.get_docstring(node) or "")
            if not is_private and any(base in known or base.endswith(("Error", "Exception")) for base in bases):
                yield Violation(file.path, node.lineno, f"{node.name}: move it to errors.py, or make it private")


def _error_names(files: list[File]) -> set[str]:
    return {node.name for file in files if file.path == f"{SOURCE}/errors.py" for node in _classes(file)}


def _classes(file: File) -> Iterator[ast.ClassDef]:
    return (node for node in file.tree.body if isinstance(node, ast.ClassDef))


def _text(node: ast.expr) -> str | None:
    """Return a literal or an f-string with {} for each value."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(each.value) if isinstance(each, ast.Constant) else "{}" for each in node.values)
    return None


def _judged(file: File, line: int, text: str) -> Iterator[Violation]:
    for pattern, suggestion in banned()["errors"]["patterns"]:
        if re.search(pattern, text):
            yield Violation(file.path, line, f"{text[:90]!r}: write {suggestion}")
            return
    if re.search(r"\bgot \{", text) and "must" not in text:
        yield Violation(file.path, line, f"{text[:90]!r}: write X must be ..., got ...")
    elif " " in text and not text.startswith(("a ", "an ")) and not text.rstrip().endswith(_ENDS):
        yield Violation(file.path, line, f"{text[-90:]!r}: end with a period")


def constants(files: list[File]) -> Iterator[Violation]:
    """Find numeric constants without a comment on their line, above it, or a docstring below it."""
    for file in files:
        body = file.tree.body if file.python else []
        for node, after in zip(body, [*body[1:], None], strict=False):
            name = _constant(node)
            if name and not _commented(file, node) and not (isinstance(after, ast.Expr) and _text(after.value)):
                yield Violation(file.path, node.lineno, f"{name}: state the unit and the reason")


def _constant(node: ast.stmt) -> str:
    if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
        return ""
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    numbers = [each for each in ast.walk(node.value) if isinstance(each, ast.Constant)]
    arithmetic = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Name, ast.expr_context)
    if not all(isinstance(each, arithmetic) for each in ast.walk(node.value)) or not numbers:
        return ""
    if any(isinstance(each.value, (str, bytes, bool, type(None), type(...))) for each in numbers):
        return ""
    return target.id if isinstance(target, ast.Name) and _CONSTANT.match(target.id) else ""


def _commented(file: File, node: ast.stmt) -> bool:
    last = file.lines[(node.end_lineno or node.lineno) - 1]
    above = file.lines[node.lineno - 2] if node.lineno > 1 else ""
    return "#" in last or above.lstrip().startswith("#")


def sizes(files: list[File]) -> Iterator[Violation]:
    """Find files and functions that are too long."""
    for file in files:
        if not file.python:
            continue
        if len(file.lines) > MOST_LINES:
            yield Violation(file.path, 1, f"has {len(file.lines)} lines, at most {MOST_LINES} are allowed")
        for node in file.nodes:
            if isinstance(node, _FUNCTIONS):
                length = (node.end_lineno or 0) - node.lineno + 1 - _docstring_lines(node)
                if length > MOST_FUNCTION_LINES:
                    yield Violation(file.path, node.lineno, f"{node.name} has {length} lines")


def _docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = node.body[0]
    if isinstance(first, ast.Expr) and _text(first.value) is not None:
        return (first.end_lineno or 0) - first.lineno + 1
    return 0


def rows(files: list[File]) -> Iterator[Violation]:
    """Find rows whose columns are read by number in operations: the row class of a query names them."""
    for file in files:
        module = file.path.removeprefix(_STORAGE)
        if not file.python or module == file.path:
            continue
        for node in file.nodes:
            if isinstance(node, ast.Subscript) and _is_row(node.value) and _is_constant_index(node.slice):
                yield Violation(file.path, node.lineno, f"{ast.unparse(node)}: read the column by its name")


def _is_row(node: ast.expr) -> bool:
    """Return whether an expression is a row: `row`, `branch_row`, `rows[0]`."""
    if isinstance(node, ast.Subscript):
        return _last_name(node.value).endswith("rows") and not isinstance(node.slice, ast.Slice)
    return re.fullmatch(r"(\w+_)?row", _last_name(node)) is not None


def _is_constant_index(node: ast.expr) -> bool:
    if isinstance(node, ast.Slice):
        return any(end is not None and _is_constant_index(end) for end in (node.lower, node.upper))
    if isinstance(node, ast.UnaryOp):
        return _is_constant_index(node.operand)
    return isinstance(node, ast.Constant) and isinstance(node.value, int)
