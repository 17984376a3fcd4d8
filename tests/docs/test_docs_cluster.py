"""docs/cluster.md has every option of scripts/cluster and no other, and its sample has what the tool was run with."""

from __future__ import annotations

import re

from docs_pages import ROOT, read

TOOL = (ROOT / "tools/cluster/__main__.py").read_text(encoding="utf-8")
NODES = (ROOT / "tools/cluster/nodes.py").read_text(encoding="utf-8")


def test_every_option_is_described():
    options = set(re.findall(r'add_argument\("(--[a-z]+)"', TOOL))
    assert len(options) == 6
    assert set(re.findall(r"^\| `(--[a-z]+)", read("docs/cluster.md"), re.MULTILINE)) == options


def test_every_kind_of_kill_is_described():
    kinds = re.search(r"KINDS = \((.*)\)", TOOL)[1].replace('"', "`").split(", ")
    assert len(kinds) == 3
    for kind in kinds:
        assert f"{kind} (" in read("docs/cluster.md")


def test_the_sample_replicates_as_the_tool_does():
    sample = read("docs/cluster.md")
    seconds = re.search(r"_TTL, _LOOP, _RETRY = (\d+), (\d+), (\d+)", NODES).groups()
    for name, value in zip(("ttl", "loop_wait", "retry_timeout"), seconds, strict=True):
        assert re.search(rf"^    {name}: {value}\b", sample, re.MULTILINE)
        assert f'"{name}": _' in NODES
    for line in ("synchronous_mode: quorum", "synchronous_mode_strict: true", "use_pg_rewind: true"):
        assert line in sample
    assert '"synchronous_mode": "quorum" if synchronous' in NODES
