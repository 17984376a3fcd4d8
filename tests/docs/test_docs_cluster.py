"""docs/explanation/durability.md has every option of scripts/cluster and no other; the sample in cluster.md is what the tool runs with."""

from __future__ import annotations

import re

from docs_pages import ROOT, read_page

TOOL = (ROOT / "tools/cluster/__main__.py").read_text(encoding="utf-8")
NODES = (ROOT / "tools/cluster/nodes.py").read_text(encoding="utf-8")


def test_every_option_is_documented():
    options = set(re.findall(r'add_argument\("(--[a-z]+)"', TOOL))
    assert len(options) == 6
    assert set(re.findall(r"^\| `(--[a-z]+)", read_page("docs/explanation/durability.md"), re.MULTILINE)) == options


def test_every_kind_of_kill_is_documented():
    kinds = re.search(r"KINDS = \((.*)\)", TOOL)[1].replace('"', "`").split(", ")  # pyright: ignore[reportOptionalSubscript]
    assert len(kinds) == 3
    for kind in kinds:
        assert f"{kind} (" in read_page("docs/explanation/durability.md")


def test_the_sample_configuration_has_the_settings_of_the_tool():
    sample = read_page("docs/how-to/cluster.md")
    seconds = re.search(r"_TTL, _LOOP, _RETRY = (\d+), (\d+), (\d+)", NODES).groups()  # pyright: ignore[reportOptionalMemberAccess]
    for name, value in zip(("ttl", "loop_wait", "retry_timeout"), seconds, strict=True):
        assert re.search(rf"^    {name}: {value}\b", sample, re.MULTILINE)
        assert f'"{name}": _' in NODES
    for line in ("synchronous_mode: quorum", "synchronous_mode_strict: true", "use_pg_rewind: true"):
        assert line in sample
    assert '"synchronous_mode": "quorum" if synchronous' in NODES
