"""Compressed files: several frames, and a file that ends too early."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import zstandard

from recollect.errors import UnreadableFile
from recollect.sources.codex import SOURCE
from recollect.sources.files import FolderTree

FIRST_LINE = b'{"timestamp":"2025-07-12T10:00:00Z","type":"session_meta","payload":{"id":"a"}}\n'
DATA = FIRST_LINE + b"".join(b'{"number":%d}\n' % number for number in range(50_000))


def write(folder: Path, data: bytes) -> FolderTree:
    (folder / "rollout-a.jsonl.zst").write_bytes(data)
    return FolderTree(folder)


def skippable_frame(data: bytes) -> bytes:
    return b"\x50\x2a\x4d\x18" + len(data).to_bytes(4, "little") + data


@pytest.mark.parametrize("cuts", [(), (1,), (100, 200_000), (300, 300, 301)])
def test_frames_are_read_as_one_file(tmp_path: Path, cuts: tuple[int, ...]):
    limits = (0, *cuts, len(DATA))
    pieces = [DATA[start:end] for start, end in itertools.pairwise(limits)]
    frames = [zstandard.ZstdCompressor().compress(piece) for piece in pieces]
    tree = write(tmp_path, skippable_frame(b"note").join(frames))
    assert tree.read("rollout-a.jsonl.zst") == DATA
    with tree.open("rollout-a.jsonl.zst") as file:
        assert list(file) == DATA.splitlines(keepends=True)


@pytest.mark.parametrize("missing", [1, 10, 2_000])
def test_a_truncated_file_is_found_and_cannot_be_read(tmp_path: Path, missing: int):
    tree = write(tmp_path, zstandard.ZstdCompressor().compress(DATA)[:-missing])
    assert [transcript.name for transcript in SOURCE.detect(tree, tree.names())] == ["rollout-a.jsonl.zst"]
    with pytest.raises(UnreadableFile, match="ends too early"):
        tree.read("rollout-a.jsonl.zst")


def test_damaged_data_cannot_be_read(tmp_path: Path):
    data = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(DATA))
    data[-3] ^= 1
    tree = write(tmp_path, bytes(data))
    assert tree.head("rollout-a.jsonl.zst").startswith(FIRST_LINE)
    with pytest.raises(UnreadableFile):
        tree.read("rollout-a.jsonl.zst")
