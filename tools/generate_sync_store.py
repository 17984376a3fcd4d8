"""Generate the sync store, src/recollect/store, from the async store, src/recollect/store_async.

python tools/generate_sync_store.py [--check]

With --check, write nothing and fail if a generated file is out of date. `await` and `async` are removed and names are
replaced; ruff then sorts the imports and formats the text. What differs by nature is in the modules `waiting` and
`__init__` of both packages, which are written by hand, and in the texts below.
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

PACKAGES = pathlib.Path(__file__).parents[1] / "src" / "recollect"
MODULES = ("session", "store", "turn", "watch")
COMMENT = "# Generated from store_async/{module}.py. Change that file, then run: python tools/generate_sync_store.py\n"

TEXTS = {
    "Tasks may share a store": "Threads may share a store",
    "when an awaited method returns": "when a method returns",
    " Enter it with `async with`, or await it: changes from then on are\n        reported.": "",
    " Await it, in any\n        event loop. Without a running event loop, the call itself closes the store, and"
    " awaiting it does nothing.": "",
    ", or await it.": ".",
    "Another task may call this": "Another thread may call this",
}
"""Parts of docstrings that differ. Each of them must occur."""

NAMES = {
    r"\basync (?=def|with|for)": "",
    r"\bawait ": "",
    r"\bCoroutine\[Any, Any, (\w+)\]": r"\1",
    r"\bStopAsyncIteration\b": "StopIteration",
    r"\b__a(enter|exit|iter|next)__\b": r"__\1__",
    r"\bAsync(?=[A-Z])": "",
    r"\bstore_async\b": "store",
}


def generate(module: str) -> tuple[str, set[str]]:
    """Return the text of a generated module, and the keys of TEXTS that it uses."""
    text = (PACKAGES / "store_async" / f"{module}.py").read_text(encoding="utf-8")
    keys = {original for original in TEXTS if original in text}
    for original in keys:
        text = text.replace(original, TEXTS[original])
    for pattern, replacement in NAMES.items():
        text = re.sub(pattern, replacement, text)
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
    for module in MODULES:
        path = PACKAGES / "store" / f"{module}.py"
        text, keys = generate(module)
        occurring |= keys
        if path.read_text(encoding="utf-8") != text:
            differences.append(f"src/recollect/store/{module}.py")
            if "--check" not in sys.argv[1:]:
                path.write_text(text, encoding="utf-8")
    if missing := sorted(TEXTS.keys() - occurring):
        sys.exit(f"tools/generate_sync_store.py replaces a text that store_async does not contain: {missing[0]!r}")
    if differences and "--check" in sys.argv[1:]:
        sys.exit(f"Out of date: {', '.join(differences)}. Run: python tools/generate_sync_store.py")


if __name__ == "__main__":
    main()
