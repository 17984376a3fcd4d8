"""Generate the reference pages, docs/reference/api, from the docstrings and signatures of all public names.

python tools/reference.py [--check]

With --check, write nothing and fail if a page is out of date. A docstring is Markdown. A reference in brackets, such as
[Page], [store.session()], [text][Leases] or [search.md#the-index], becomes a link: to a public name, a method, a
heading of docs/reference/library.md, or a page. `tools/reference_pages.py` states which names are on which page.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import os
import pathlib
import re
import sys
import textwrap
import typing
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from reference_pages import FOLDER, INDEX_INTRODUCTION, MODULES, PAGES, ReferencePage

ROOT = pathlib.Path(__file__).parents[1]
NOTE = "<!-- Generated from docstrings. Change those, then run: python tools/reference.py -->\n"
OVERVIEW = "docs/reference/library.md"
MAX_SIGNATURE_LENGTH = 100  # characters of a signature on one line
FOREIGN_NAMES = {
    "Any",
    "Callable",
    "Collection",
    "Iterable",
    "Literal",
    "Mapping",
    "NewType",
    "None",
    "PathLike",
    "Sequence",
    "TypedDict",
    "Unpack",
}
"""Names in signatures that belong to Python."""

_QUALIFIER = re.compile(r"\b(?!os\.)(?:[a-z_]+\.)+(?=[A-Za-z])")
_CODE = re.compile(r"^```.*?^```$|`[^`]*`", re.MULTILINE | re.DOTALL)
_REFERENCE = re.compile(r"(?<!\])\[([^\]]+)\](?:\[([^\]]+)\])?(?!\()")


class Member(NamedTuple):
    """A method, property or attribute of a class, as the reference names it."""

    name: str
    value: Any
    docstring: str


class Section(NamedTuple):
    """A section of a page: the name that references use, the heading, and the Markdown text."""

    key: str
    heading: str
    text: str


def public_object(name: str) -> Any:
    """Return the object of a qualified public name, such as recollect.types.Page."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


@functools.cache
def public_names() -> dict[str, str]:
    """Return the module of each public name. A name of `recollect` is not repeated for the other modules."""
    names: dict[str, str] = {}
    for module in MODULES:
        for name in importlib.import_module(module).__all__:
            if not inspect.ismodule(getattr(importlib.import_module(module), name)):
                names.setdefault(name, module)
    return names


def docstring(value: Any, name: str) -> str:
    """Return the docstring of an object, not an inherited one. Raise SystemExit if it has none."""
    text = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    if not text:
        sys.exit(f"{name} has no docstring.")
    return inspect.cleandoc(text)


@functools.cache
def parse_class(cls: type) -> ast.ClassDef:
    """Return the syntax tree of a class."""
    tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(cls)))
    return typing.cast("ast.ClassDef", tree.body[0])


def literal_docstring(node: ast.stmt | None) -> str:
    """Return the text of a statement that is a text: the docstring of the definition before it."""
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    return inspect.cleandoc(ast.literal_eval(node.value)) if is_text else ""


def list_members(cls: type) -> Iterator[Member]:
    """Return the public members of a class with a docstring, in the order of the source; those of its bases last."""
    for base in (base for base in cls.__mro__ if base.__module__.startswith("recollect.")):
        body = parse_class(base).body
        for node, after in zip(body, [*body[1:], None], strict=True):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                value = inspect.getattr_static(base, node.name)
                function = value.fget if isinstance(value, property) else value
                yield Member(node.name, value, docstring(function, f"{cls.__name__}.{node.name}"))
            if isinstance(node, ast.AnnAssign) and (text := literal_docstring(after)):
                yield Member(ast.unparse(node.target), None, text)


def format_annotation(annotation: Any, cls: type | None) -> str:
    """Return an annotation without the modules of its names. Raise SystemExit if a name is not public."""
    if annotation in ("AsyncStoreOpener", inspect.Parameter.empty):
        return ""
    text = _QUALIFIER.sub("", str(annotation)).replace("StoreLocation", "str | os.PathLike[str]")
    text = text.replace("Self", cls.__name__) if cls is not None else text
    for name in re.findall(r"\b[A-Z]\w*", text):
        if name not in public_names() and name not in FOREIGN_NAMES:
            sys.exit(f"The signature type {name} of {cls} is not public: {text}.")
    return text


def format_parameter(parameter: inspect.Parameter, cls: type | None) -> str:
    """Return a parameter with its type and its default, such as `limit: int = 50`."""
    annotation = format_annotation(parameter.annotation, cls)
    name = {parameter.VAR_KEYWORD: "**", parameter.VAR_POSITIONAL: "*"}.get(parameter.kind, "") + parameter.name
    text = f"{name}: {annotation}" if annotation else name
    if parameter.default is parameter.empty:
        return text
    default = f'"{parameter.default}"' if isinstance(parameter.default, str) else repr(parameter.default)
    return f"{text} = {default}" if annotation else f"{text}={default}"


def format_signature(name: str, function: Callable[..., Any], cls: type | None = None) -> str:
    """Return a signature as a fenced block: on one line if it is short, otherwise with one parameter per line."""
    signature = inspect.signature(function)
    parameters: list[str] = []
    is_keyword_only = False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not is_keyword_only:
            is_keyword_only = True
            parameters.append("*")
        if parameter.name != "self":
            parameters.append(format_parameter(parameter, cls))
    result = format_annotation(signature.return_annotation, cls)
    end = f") -> {result}" if result else ")"
    line = f"{name}({', '.join(parameters)}{end}"
    if len(line) > MAX_SIGNATURE_LENGTH:
        line = f"{name}(\n" + "".join(f"    {text},\n" for text in parameters) + end
    return f"```py\n{line}\n```\n\n"


def async_note(function: Callable[..., Any]) -> str:
    """Return how to call the asynchronous form of a method if it is not simply awaited."""
    if inspect.iscoroutinefunction(function):
        return ""
    result = str(inspect.signature(function).return_annotation)
    if result.startswith(("Coroutine", "Awaitable")):
        return ""
    if result in ("AsyncTurn", "AsyncStream", "AsyncWatch"):
        return "\n\nIn the asynchronous class, enter the result with `async with`, or await it."
    return "\n\nIn the asynchronous class, this method is not awaited."


def type_note(value: Any) -> str:
    """Return the type of a property that returns a value or a group of methods."""
    result = inspect.signature(value.fget).return_annotation if isinstance(value, property) else ""
    return f"\n\nType: [{result}]." if result in public_names() else ""


def member_sections(noun: str, cls: type, async_class: type) -> Iterator[Section]:
    """Return a section for each public member of a class."""
    for member in list_members(cls):
        name = f"{noun}.{member.name}"
        if inspect.isfunction(member.value):
            signature = format_signature(name, member.value, cls)
            note = async_note(inspect.getattr_static(async_class, member.name))
            yield Section(f"{name}()", f"{name}()", f"{signature}{member.docstring}{note}")
        elif (noun, member.name) != ("session", "id"):  # one of the fields
            yield Section(name, name, f"{member.docstring}{type_note(member.value)}")


def import_line(*names: str) -> str:
    """Return the statement that imports public names of one module."""
    return f"`from {public_names()[names[0]]} import {', '.join(names)}`"


def class_sections(noun: str, name: str) -> Iterator[Section]:
    """Return the section of a class with methods, and of each of its members."""
    cls, async_class = (public_object(f"{public_names()[each]}.{each}") for each in (name, f"Async{name}"))
    sections = list(member_sections(noun, cls, async_class))
    rows = "".join(f"| [{each.key}] | {first_sentence(each.text)} |\n" for each in sections)
    text = f"{import_line(name, f'Async{name}')}\n\n{docstring(cls, name)}\n\n| name | description |\n|---|---|\n{rows}"
    yield Section(name, name, text.rstrip())
    yield from sections


def first_sentence(text: str) -> str:
    """Return the first line of the docstring of a section."""
    return re.sub(r"^```py\n.*?\n```\n\n", "", text, flags=re.DOTALL).partition("\n")[0].replace("|", "\\|")


def plain_signature(name: str, function: Callable[..., Any]) -> str:
    """Return the signature of a constructor or a method of a value, without types: fields have few."""
    signature = inspect.signature(function)
    parameters = [each.replace(annotation=each.empty) for each in signature.parameters.values() if each.name != "self"]
    text = str(signature.replace(parameters=parameters, return_annotation=signature.empty)).replace("'", '"')
    return f"```py\n{name}{text}\n```\n\n"


def field_annotations(cls: type) -> dict[str, ast.expr]:
    """Return the annotations of the public fields and properties of a value, without those of a public base class."""
    annotations: dict[str, ast.expr] = {}
    bases = [base for base in cls.__mro__ if base.__module__.startswith("recollect.")]
    for base in reversed([base for base in bases if base is cls or base.__name__ not in public_names()]):
        for node in parse_class(base).body:
            if isinstance(node, ast.AnnAssign):
                annotations[ast.unparse(node.target)] = node.annotation
            elif isinstance(node, ast.FunctionDef) and isinstance(vars(base).get(node.name), property) and node.returns:
                annotations[node.name] = node.returns
    return {name: each for name, each in annotations.items() if not name.startswith("_")}


def format_field(name: str, annotation: ast.expr) -> str:
    """Return a field with its type. A time is a datetime that is computed from its milliseconds."""
    text = ast.unparse(annotation)
    if name.endswith("_at_ms"):
        name, text = name.removesuffix("_ms"), text.replace("int", "datetime")
    text = re.sub(r"Annotated\[(\w+), .*\]", r"\1", expand_private_aliases(text))
    line = f"{name}: {format_annotation(text, None)}".replace("'", '"')
    return textwrap.fill(line, MAX_SIGNATURE_LENGTH, subsequent_indent="    ", break_on_hyphens=False)


def value_fields(name: str, cls: type) -> str:
    """Return the fields and properties of a value with their types, as a fenced block."""
    lines = [format_field(*each) for each in field_annotations(cls).items()]
    body = textwrap.indent("\n".join(lines), "    ")
    return f"```py\nclass {name}:\n{body}\n```\n\n" if lines else ""


def value_section(name: str) -> Section:
    """Return the section of a value: its fields, its constructor if programs call it, its docstring, its methods."""
    cls = public_object(f"{public_names()[name]}.{name}")
    constructor = plain_signature(name, cls) if name in ("Draft", "CompactionPolicy") else ""
    text = f"{import_line(name)}\n\n{value_fields(name, cls)}{constructor}{docstring(cls, name)}"
    for member in list_members(cls):
        if inspect.isfunction(member.value) and member.name in vars(cls) and member.name != "to_dict":
            text += f"\n\n{plain_signature(f'{name}.{member.name}', member.value)}{member.docstring}"
    return Section(name, name, text)


def error_section(name: str) -> Section:
    """Return the section of an error: its base, the template of its message, and its description."""
    cls = public_object(f"recollect.errors.{name}")
    message, _, description = docstring(cls, name).partition("\n\n")
    bases = ", ".join(
        f"[{base.__name__}]" if base.__name__ in public_names() else f"`{base.__name__}`" for base in cls.__bases__
    )
    template = " ".join(message.split()).replace("!r}", "}")
    return Section(name, name, f"{import_line(name)}. Base: {bases}.\n\n{description}\n\nMessage: `{template}`")


@functools.cache
def read_aliases() -> dict[str, tuple[str, str]]:
    """Return the definition and the docstring of each type alias of the package, by name."""
    aliases: dict[str, tuple[str, str]] = {}
    for path in sorted((ROOT / "src" / "recollect").rglob("*.py")):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        for node, after in zip(body, [*body[1:], None], strict=True):
            if isinstance(node, ast.Assign) and re.fullmatch(r"[A-Z][A-Za-z]+", name := ast.unparse(node.targets[0])):
                text = literal_docstring(after)
                if text or name not in aliases:  # other modules import an alias under its name
                    aliases[name] = (_QUALIFIER.sub("", ast.unparse(node.value)).replace("'", '"'), text)
    return aliases


def expand_private_aliases(text: str) -> str:
    """Return an annotation with the definitions of private aliases in place of their names."""
    for each in re.findall(r"\b[A-Z]\w*", text):
        if each not in public_names() and each in read_aliases():
            text = re.sub(rf"\b{each}\b", read_aliases()[each][0], text)
    return text


def alias_definition(name: str) -> str:
    """Return the definition of an alias, with private aliases replaced by theirs; nothing if other names remain."""
    text = expand_private_aliases(read_aliases()[name][0])
    names = set(re.findall(r"\b[A-Z]\w*", re.sub(r'"[^"]*"', "", text)))
    return f"{name} = {text}" if names <= public_names().keys() | FOREIGN_NAMES else ""


def alias_section(name: str) -> Section:
    """Return the section of a type alias, or of a dict of fields: its definition and its docstring."""
    value = public_object(f"{public_names()[name]}.{name}")
    if typing.is_typeddict(value):
        annotations = inspect.get_annotations(value)
        fields = "".join(
            f"    {field}: {format_annotation(each.__forward_arg__, None)}\n" for field, each in annotations.items()
        )
        definition, text = f"class {name}(TypedDict):\n{fields.rstrip()}", docstring(value, name)
    else:
        definition, text = alias_definition(name), read_aliases()[name][1]
        if not text:
            sys.exit(f"The type {name} has no docstring.")
    code = f"```py\n{definition}\n```\n\n" if definition else ""
    return Section(name, name, f"{import_line(name)}\n\n{code}{text}")


def function_section(name: str) -> Section:
    """Return the section of a function."""
    function = public_object(name)
    text = f"{format_signature(name, function)}{docstring(function, name)}"
    return Section(f"{name}()", f"{name}()", text)


_MAKERS = {
    "functions": function_section, "values": value_section, "errors": error_section, "types": alias_section,
}  # fmt: skip


@functools.cache
def page_sections(page: ReferencePage) -> list[Section]:
    """Return the sections of a page."""
    sections: list[Section] = []
    for entry in page.entries:
        noun, _, name = entry.rpartition(":")
        sections += class_sections(noun, name) if page.kind == "classes" else [_MAKERS[page.kind](name)]
    return sections


def anchor(heading: str) -> str:
    """Return the anchor of a heading, as GitHub generates it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@functools.cache
def targets() -> dict[str, str]:
    """Return the target of each reference in lower case: a path from the root of the repository, with an anchor."""
    headings = re.findall(r"^#+ (.+)$", (ROOT / OVERVIEW).read_text(encoding="utf-8"), re.MULTILINE)
    result = {heading.lower(): f"{OVERVIEW}#{anchor(heading)}" for heading in headings}
    for path in sorted(ROOT.glob("docs/*/*.md"), key=lambda path: path.parent.name == "reference"):
        result[path.name.lower()] = path.relative_to(ROOT).as_posix()
    for page in PAGES:
        for section in page_sections(page):
            result[section.key.lower()] = f"{FOLDER}/{page.file}#{anchor(section.heading)}"
    return result


def find_target(reference: str, file: str) -> str:
    """Return the link from a page to the target of a reference. Raise SystemExit if it has none."""
    name, _, fragment = reference.lower().partition("#")
    if name not in targets():
        sys.exit(f"{FOLDER}/{file}: [{reference}] names no public name, method, heading of {OVERVIEW} or page.")
    path, _, own_anchor = targets()[name].partition("#")
    link = "" if path == f"{FOLDER}/{file}" else os.path.relpath(path, FOLDER)
    return f"{link}#{fragment or own_anchor}" if fragment or own_anchor else link


def link_definitions(text: str, file: str) -> str:
    """Return the definitions of the references in a page, which Markdown resolves to links."""
    labels = {" ".join((label or name).split()) for name, label in _REFERENCE.findall(_CODE.sub("", text))}
    unique_labels = {label.lower(): label for label in sorted(labels)}  # Markdown ignores their case
    return "".join(f"[{label}]: {find_target(label, file)}\n" for _, label in sorted(unique_labels.items()))


def page_text(page: ReferencePage) -> str:
    """Return a reference page."""
    sections = page_sections(page)
    level = "###" if page.kind == "classes" else "##"
    body = ""
    for section in sections:
        if section.heading != page.title:  # otherwise the page describes one class
            body += f"\n{level if '.' in section.key else '##'} {section.heading}\n"
        body += f"\n{section.text}\n"
    contents = "" if page.kind == "classes" else "".join(f"- [{each.key}]\n" for each in sections)
    text = f"# {page.title}\n\n{NOTE}\n{page.introduction.strip()}\n{contents and chr(10) + contents}{body}"
    return f"{text}\n{link_definitions(text, page.file)}"


def index_text() -> str:
    """Return the index: the pages, and all public names with their modules."""
    rows = "".join(f"| [{page.title}]({page.file}) | {page.summary} |\n" for page in PAGES)
    text = f"# Reference of the Python library\n\n{NOTE}\n{INDEX_INTRODUCTION.strip()}\n\n"
    text += f"| page | content |\n|---|---|\n{rows}"
    for module in MODULES:
        names = sorted(name for name, first in public_names().items() if first == module)
        text += f"\n## {module}\n\n{', '.join(f'[{reference_key(name)}]' for name in names)}\n"
    return f"{text}\n{link_definitions(text, 'README.md')}"


def reference_key(name: str) -> str:
    """Return the reference of a public name. The one of an asynchronous class is the section of the synchronous one."""
    keys = targets()
    for key in (name, f"{public_names()[name]}.{name}()"):
        if key.lower() in keys:
            return key
    if name.startswith("Async") and name.removeprefix("Async").lower() in keys:
        return f"{name}][{name.removeprefix('Async')}"
    sys.exit(f"{public_names()[name]}.{name} is on no page. Add it to tools/reference_pages.py.")


def main() -> None:
    """Write the pages, or with --check compare them."""
    pages = {"README.md": index_text(), **{page.file: page_text(page) for page in PAGES}}
    folder = ROOT / FOLDER
    folder.mkdir(exist_ok=True)
    stale = [path.name for path in folder.glob("*.md") if path.name not in pages]
    differences = [
        name
        for name, text in pages.items()
        if not (folder / name).exists() or (folder / name).read_text(encoding="utf-8") != text
    ]
    if "--check" in sys.argv[1:]:
        if differences or stale:
            sys.exit(f"Out of date in {FOLDER}: {', '.join(differences + stale)}. Run: python tools/reference.py")
        return
    for name in stale:
        (folder / name).unlink()
    for name in differences:
        (folder / name).write_text(pages[name], encoding="utf-8")


if __name__ == "__main__":
    main()
