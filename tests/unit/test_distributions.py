"""The two distributions of the repository, recollect and recollect-conformance."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import tomllib
import zipfile

import pytest

import recollect

ROOT = pathlib.Path(__file__).parents[2]


def test_the_conformance_suite_has_the_version_of_recollect_and_requires_it():
    project = tomllib.loads((ROOT / "conformance" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == recollect.__version__
    assert f"recollect=={recollect.__version__}" in project["dependencies"]


@pytest.mark.all
@pytest.mark.parametrize(("folder", "package"), [(".", "recollect"), ("conformance", "recollect_conformance")])
def test_a_wheel_contains_its_package_and_no_tests(folder, package, tmp_path):
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "-q", "-w", str(tmp_path)]
    result = subprocess.run([*command, str(ROOT / folder)], capture_output=True, text=True, check=False)
    if "No matching distribution found for hatchling" in result.stderr:
        pytest.skip("pip cannot download hatchling")
    assert result.returncode == 0, result.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == f"{package}-{recollect.__version__}-py3-none-any.whl"
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {package, f"{package}-{recollect.__version__}.dist-info"}
    assert not [name for name in names if "/test" in name or "conftest" in name]
    assert f"{package}/py.typed" in names
