"""Colours, lines and texts of drawings. Pure.

The colours are Okabe and Ito's, which people with any kind of colour vision can distinguish; lines, marks and hatches
differ as well, so colour is not required. Each theme uses those that stand out from its paper.
"""

from __future__ import annotations

from dataclasses import dataclass

from daemons.report.charts import plain_text
from shared.base.errors import InvalidValue

BLUE, ORANGE, GREEN, BLACK = "#0072b2", "#e69f00", "#009e73", "#000000"
VERMILION, PURPLE, SKY, YELLOW = "#d55e00", "#cc79a7", "#56b4e9", "#f0e442"
# Places of colours that experiments name.
AT_BLUE, AT_ORANGE, AT_GREEN, AT_PURPLE, AT_INK, AT_OTHER, AT_GREY, AT_LAST = range(8)
DASHES: tuple[object, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (1, 3)), (0, (3, 4)))
# Places of lines that experiments name.
SOLID, DASHED, DASH_DOTTED, DOTTED = range(4)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "+++", "ooo", "---")
NAME_LENGTH_MAX = 48


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours as `#rrggbb`, each once. series: by their places. is_page: a page's style sheet may replace them."""

    paper: str
    ink: str
    muted: str
    grid: str
    series: tuple[str, ...]
    is_page: bool = False

    def variables(self) -> dict[str, str]:
        """Return the style sheet variable of each colour."""
        named = {self.ink: "--chart-ink", self.muted: "--chart-muted", self.grid: "--chart-grid"}
        return named | {colour: f"--chart-{place}" for place, colour in enumerate(self.series)}


_LIGHT = (BLUE, VERMILION, GREEN, PURPLE, BLACK, "#b87f00", "#6e7781", "#3a8fb7")
_DARK = (SKY, ORANGE, "#1fbf92", PURPLE, "#ffffff", YELLOW, "#8b949e", "#f28e5c")
_LIGHT_INK = ("#ffffff", "#1f2328", "#59636e", "#d1d9e0")
THEMES = {
    "light": Theme(*_LIGHT_INK, _LIGHT),
    "dark": Theme("#0d1117", "#f0f6fc", "#9198a1", "#3d444d", _DARK),
    "page": Theme(*_LIGHT_INK, _LIGHT, True),
}


def style_sheet(theme: str) -> str:
    """Return the declarations with which a page shows charts of the theme `page` in another theme."""
    if theme not in THEMES:
        raise InvalidValue("theme", theme, f"one of {', '.join(THEMES)}")
    return "".join(f"{name}:{colour};" for colour, name in THEMES[theme].variables().items())


def shown_text(text: str, length_max: float = NAME_LENGTH_MAX) -> str:
    """Return a text that a drawing can show: non-printable characters become question marks, a long text is cut."""
    clean = plain_text(text)
    clean = f" {clean}" if clean.startswith("_") else clean  # the legend leaves such names out
    return clean if len(clean) <= length_max else f"{clean[: int(length_max) - 1]}…"
