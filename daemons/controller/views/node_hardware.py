"""The parts of a node that migrations to it depend on: its abilities, its NUMA cells and its hugepages."""

from __future__ import annotations

from dataclasses import asdict

from daemons.controller.state.migration_fit import free_pages_mib
from daemons.controller.state.nodes import NodeEntry
from daemons.values.view_format import Row
from shared.values.migration import PageUse
from shared.values.nodes import Node


def node_hardware(node: NodeEntry) -> Row:
    """Return the parts of a node that migrations to it depend on."""
    facts = node.inventory
    return {
        "abilities": [ability.value for ability in facts.abilities] if facts else None,
        "numa_cells": [asdict(cell) for cell in facts.numa_cells] if facts else None,
        "hugepages": [_pool(node, facts, size_kib) for size_kib in _sizes(facts)] if facts else None,
    }


def _sizes(facts: Node) -> list[int]:
    return sorted({pool.size_kib for pool in facts.hugepages})


def _pool(node: NodeEntry, facts: Node, size_kib: int) -> Row:
    """Return the hugepages of a size on a node, in all NUMA cells."""
    pools = [pool for pool in facts.hugepages if pool.size_kib == size_kib]
    (free_mib,) = free_pages_mib(node, PageUse(((size_kib, 0),)))
    cells = {f"{pool.cell}": pool.total_mib for pool in pools if pool.cell >= 0}
    total_mib = sum(pool.total_mib for pool in pools)
    return {"size_kib": size_kib, "total_mib": total_mib, "free_mib": free_mib, "cells_mib": cells}
