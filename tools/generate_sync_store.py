"""Generate the sync store, src/recollect/store, from the async store, src/recollect/store_async.

python tools/generate_sync_store.py [--check]

With --check, write nothing and fail if a generated file is out of date. `await` and `async` are removed from the code
and names are replaced; ruff then sorts the imports and formats the text. What differs by nature is in the modules
`waiting` and `__init__` of both packages, which are written by hand, and in the texts below. A word of async code that
remains is an error.
"""

from __future__ import annotations

import io
import pathlib
import re
import subprocess
import sys
import tokenize

PACKAGES = pathlib.Path(__file__).parents[1] / "src" / "recollect"
BY_HAND = {"__init__", "backups", "waiting"}
COMMENT = "# Generated from store_async/{module}.py. Change that file, then run: python tools/generate_sync_store.py\n"

TEXTS = {
    "Tasks may share a store": "Threads may share a store",
    "when an awaited method returns": "when a method returns",
    "\n\n        Enter it with `async with`, or await it: changes from then on are reported.": "",
    "\n\n        Await it, in any event loop. Without a running event loop, the call itself closes the store.": "",
    ", or await it.": ".",
    "Another task may call this": "Another thread may call this",
}
"""Parts of docstrings that differ. Each of them must occur."""

NAMES = {
    "`async with ": "`with ",  # in docstrings
    r"\bCoroutine\[Any, Any, (\w+)\]": r"\1",
    r"\bStopAsyncIteration\b": "StopIteration",
    r"\b__a(enter|exit|iter|next)__\b": r"__\1__",
    r"\bAsync(?=[A-Z])": "",
    r"\bstore_async\b": "store",
}

ASYNC_WORD = re.compile(r"\b(await|async|asyncio|anext|aiter|aclosing)\b|Async|_async", re.IGNORECASE)


def modules(package: str) -> set[str]:
    """Return the modules of a package that are generated, or from which others are."""
    return {path.stem for path in (PACKAGES / package).glob("*.py")} - BY_HAND


def remove_keywords(text: str) -> str:
    """Remove `async` and `await` from the code. Comments and strings stay: a sentence needs a replacement in TEXTS."""
    lines = text.splitlines(keepends=True)
    for token in reversed(list(tokenize.generate_tokens(io.StringIO(text).readline))):
        if token.type == tokenize.NAME and token.string in ("async", "await"):
            row, start, end = token.start[0] - 1, token.start[1], token.end[1]
            lines[row] = lines[row][:start] + lines[row][end:].removeprefix(" ")
    return "".join(lines)


def generate(module: str) -> tuple[str, set[str]]:
    """Return the text of a generated module, and the keys of TEXTS that it uses."""
    text = (PACKAGES / "store_async" / f"{module}.py").read_text(encoding="utf-8")
    keys = {original for original in TEXTS if original in text}
    for original in keys:
        text = text.replace(original, TEXTS[original])
    text = remove_keywords(text)
    for pattern, replacement in NAMES.items():
        text = re.sub(pattern, replacement, text)
    if word := ASYNC_WORD.search(text):
        line = text.count("\n", 0, word.start()) + 1
        sys.exit(f"store_async/{module}.py, about line {line}: {word[0]!r} has no sync form. Add it to NAMES or TEXTS.")
    text = COMMENT.format(module=module) + text
    name = f"--stdin-filename={PACKAGES / 'store' / f'{module}.py'}"
    for command in (["check", "--quiet", "--fix", "--select=F401,I001"], ["format"]):
        process = [sys.executable, "-m", "ruff", *command, name, "-"]
        text = subprocess.run(process, input=text, capture_output=True, text=True, encoding="utf-8", check=True).stdout
    return text, keys


def main() -> None:
    """Write the generated modules, or with --check compare them."""
    differences: list[str] = []
    occurring: set[str] = set()
    if stale := sorted(modules("store") - modules("store_async")):
        sys.exit(f"src/recollect/store/{stale[0]}.py has no source in store_async. Delete it.")
    for module in sorted(modules("store_async")):
        path = PACKAGES / "store" / f"{module}.py"
        text, keys = generate(module)
        occurring |= keys
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            differences.append(f"src/recollect/store/{module}.py")
            if "--check" not in sys.argv[1:]:
                path.write_text(text, encoding="utf-8")
    if missing := sorted(TEXTS.keys() - occurring):
        sys.exit(f"tools/generate_sync_store.py replaces a text that store_async does not contain: {missing[0]!r}")
    if differences and "--check" in sys.argv[1:]:
        sys.exit(f"Out of date: {', '.join(differences)}. Run: python tools/generate_sync_store.py")


if __name__ == "__main__":
    main()
