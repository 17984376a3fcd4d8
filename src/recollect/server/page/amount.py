"""Counts, sizes and spans as the page shows them: as everywhere else."""

from __future__ import annotations

from recollect.model.amount import count, lasting, many, size

__all__ = ["count", "lasting", "many", "size"]
