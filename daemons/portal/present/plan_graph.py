"""A plan as a graph: where its steps and the arrows between them are drawn. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

STEPS_MAX = 120  # more make a graph that nobody reads; the list has them all
BOX_WIDTH, BOX_HEIGHT = 190, 56
GAP_X, GAP_Y, EDGE = 60, 14, 10
TEXT_LENGTH_MAX = 24

MARKS = {
    "done": "✓",
    "failed": "✗",
    "sent": "▶",
    "waiting": "…",
    "held": "‖",
    "dropped": "–",  # noqa: RUF001  # a dash
    "unknown": "?",
}


@dataclass(frozen=True, slots=True)
class Box:
    """A step: its left upper corner in px, and what stands in it. `state`: a key of `MARKS`."""

    id: int
    x: int
    y: int
    state: str
    mark: str
    head: str
    foot: str
    words: str


@dataclass(frozen=True, slots=True)
class Graph:
    """Boxes in the order of the plan, and the paths of arrows as SVG writes them. `left_out`: steps that are not in."""

    boxes: tuple[Box, ...]
    arrows: tuple[str, ...]
    width: int
    height: int
    left_out: int


def graph(steps: Sequence[Mapping[str, Any]]) -> Graph:
    """Return the graph of steps as the view `plan` has them, in columns: steps that wait for nothing are in the
    first."""
    shown = steps[:STEPS_MAX]
    after = [[one for one in step.get("after", ()) if 0 <= one < at] for at, step in enumerate(shown)]
    layers: list[int] = []
    for step, before in zip(shown, after, strict=True):
        layers.append(max([layers[one] + 1 for one in before], default=0) if before else _first(step, layers))
    rows: dict[int, int] = {}
    boxes = []
    for at, (step, layer) in enumerate(zip(shown, layers, strict=True)):
        row = rows.get(layer, 0)
        rows[layer] = row + 1
        boxes.append(_box(at, step, EDGE + layer * (BOX_WIDTH + GAP_X), EDGE + row * (BOX_HEIGHT + GAP_Y)))
    arrows = [_arrow(boxes[one], boxes[at]) for at, before in enumerate(after) for one in before]
    width = 2 * EDGE + (max(layers, default=0) + 1) * (BOX_WIDTH + GAP_X) - GAP_X
    height = 2 * EDGE + max(rows.values(), default=1) * (BOX_HEIGHT + GAP_Y) - GAP_Y
    return Graph(tuple(boxes), tuple(arrows), width, height, len(steps) - len(shown))


def _first(step: Mapping[str, Any], layers: Sequence[int]) -> int:
    """Return the column of a step that waits for no particular step: it begins with its wave, but leaves no column
    empty."""
    return min(int(step.get("wave", 0)), max(layers, default=-1) + 1)


def _box(at: int, step: Mapping[str, Any], x: int, y: int) -> Box:
    state = str(step.get("state", "unknown"))
    where = str(step["node"]) + (f" → {step['to_node']}" if step.get("to_node") else "")
    words = f"Step {at + 1}: {step['kind']} {step['vm']} on {where}, {state}"
    detail = f": {step['detail']}" if step.get("detail") else ""
    return Box(
        at,
        x,
        y,
        state=state if state in MARKS else "unknown",
        mark=MARKS.get(state, "?"),
        head=_cut(f"{step['kind']} {step['vm']}"),
        foot=_cut(where),
        words=words + detail,
    )


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_LENGTH_MAX else text[: TEXT_LENGTH_MAX - 1] + "…"


def _arrow(one: Box, other: Box) -> str:
    """Return a curve from the right side of one box to the left side of another."""
    from_x, from_y = one.x + BOX_WIDTH, one.y + BOX_HEIGHT // 2
    to_x, to_y = other.x, other.y + BOX_HEIGHT // 2
    bend = max(GAP_X // 2, (to_x - from_x) // 2)
    return f"M{from_x},{from_y} C{from_x + bend},{from_y} {to_x - bend},{to_y} {to_x},{to_y}"
