"""The sync store is generated from the async store: the generated files are current, and --check finds a change."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = "tools/generate_sync_store.py"


def generate(root, *arguments):
    return subprocess.run(
        [sys.executable, str(root / SCRIPT), *arguments], capture_output=True, text=True, check=False, cwd=root
    )


@pytest.fixture
def clone(tmp_path):
    """Return a folder with the script, both stores, and the configuration of ruff."""
    for name in ("src/recollect/store", "src/recollect/store_async", "tools"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_sync_store_is_current():
    process = generate(ROOT, "--check")
    assert (process.returncode, process.stderr) == (0, "")


def test_check_names_the_outdated_file_and_changes_nothing(clone):
    source, generated = (clone / f"src/recollect/{package}/turn.py" for package in ("store_async", "store"))
    source.write_text(source.read_text("utf-8").replace("async def renew(", "async def extend("), "utf-8")
    process = generate(clone, "--check")
    assert process.returncode == 1
    assert "src/recollect/store/turn.py. Run: python tools/generate_sync_store.py" in process.stderr
    assert "def extend(" not in generated.read_text("utf-8")
    assert generate(clone).returncode == 0
    assert "    def extend(" in generated.read_text("utf-8")
    assert generate(clone, "--check").returncode == 0


def test_a_replaced_text_that_no_longer_occurs_is_an_error(clone):
    source = clone / "src/recollect/store_async/watch.py"
    source.write_text(
        source.read_text("utf-8").replace("Another task may call this", "Any task may call this"), "utf-8"
    )
    process = generate(clone)
    assert process.returncode == 1
    assert "'Another task may call this'" in process.stderr


@pytest.mark.parametrize(
    "line",
    ["x = 1  # await the end", "x = anext(y)", "import asyncio", '"""Await it."""', "x = contextlib.aclosing(y)"],
)
def test_a_word_without_a_sync_form_is_an_error(clone, line):
    source = clone / "src/recollect/store_async/watch.py"
    source.write_text(f"{source.read_text('utf-8')}{line}\n", "utf-8")
    process = generate(clone)
    assert process.returncode == 1
    assert f"line {len(source.read_text('utf-8').splitlines())}: " in process.stderr
    assert "has no sync form" in process.stderr


def test_a_new_module_is_generated_and_a_stale_one_is_an_error(clone):
    source = clone / "src/recollect/store_async/probe.py"
    source.write_text(
        "async def f(x: AsyncStore) -> list[int]:\n"
        "    async with x as y, y.watch() as z:\n"
        "        # A comment.\n"
        "        return [await n async for n in z if (await\n            n())]\n"
    )
    assert generate(clone, "--check").returncode == 1
    assert generate(clone).returncode == 0
    generated = (clone / "src/recollect/store/probe.py").read_text("utf-8")
    assert generated.partition("\n")[2] == (
        "def f(x: Store) -> list[int]:\n"
        "    with x as y, y.watch() as z:\n"
        "        # A comment.\n"
        "        return [n for n in z if (n())]\n"
    )
    source.unlink()
    process = generate(clone, "--check")
    assert process.returncode == 1
    assert "store/probe.py has no source" in process.stderr
