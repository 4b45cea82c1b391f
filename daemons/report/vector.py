"""What matplotlib writes as SVG, made fit for pages: no styles, no ids of others, a title and a description."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from daemons.report.charts import plain_text
from daemons.report.themes import Theme

SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"
FONT = "system-ui, 'DejaVu Sans', sans-serif"
FONT_SIZE = "9"
_HREF = f"{{{XLINK}}}href"
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_FONT_SIZE = re.compile(r"([0-9.]+)px")


def accessible(text: str, id: str, title: str, words: str, size: tuple[int, int], theme: Theme) -> str:
    """Rewrite one of Trimtab's drawings. Styles become attributes, which no CSP forbids. Ids begin with `id`, so many
    drawings fit into one page. `title` and `words` describe the drawing; `size` in px."""
    # only what matplotlib wrote a moment ago is parsed here
    root = ET.fromstring(re.sub(r"<!DOCTYPE[^>]*>", "", text))
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{SVG}}}metadata", f"{{{SVG}}}style"):
                parent.remove(child)
    _rename(root, id)
    colours = theme.variables() if theme.is_page else {}
    for element in root.iter():
        _without_style(element, colours)
    _head(root, id, title, words, size)
    ET.register_namespace("", SVG)
    ET.register_namespace("xlink", XLINK)
    return ET.tostring(root, encoding="unicode")


def _head(root: ET.Element, id: str, title: str, words: str, size: tuple[int, int]) -> None:
    root.attrib |= {
        "width": str(size[0]),
        "height": str(size[1]),
        "role": "img",
        "aria-labelledby": f"{id}-title {id}-desc",
        "stroke-linejoin": "round",
        "stroke-linecap": "butt",
        "font-family": FONT,
    }
    for place, (tag, said) in enumerate((("title", title), ("desc", words))):
        element = ET.Element(f"{{{SVG}}}{tag}", {"id": f"{id}-{tag}"})
        element.text = plain_text(said)
        root.insert(place, element)


def _rename(root: ET.Element, id: str) -> None:
    """Keep the ids that something refers to, as `id`-0, `id`-1 and so on, and drop the others."""
    used: set[str] = set()
    for element in root.iter():
        used.update(name for value in element.attrib.values() for name in _REFERENCE.findall(value))
        used.add(element.get(_HREF, "").removeprefix("#"))
    names: dict[str, str] = {}
    for element in root.iter():
        old = element.attrib.pop("id", "")
        if old in used and old:
            names[old] = f"{id}-{len(names)}"
            element.set("id", names[old])
    for element in root.iter():
        for key, value in element.attrib.items():
            element.set(key, _REFERENCE.sub(lambda found: f"url(#{names.get(found[1], found[1])})", value))
        target = element.get(_HREF, "").removeprefix("#")
        if target in names:
            element.set(_HREF, f"#{names[target]}")


def _without_style(element: ET.Element, colours: dict[str, str]) -> None:
    style = element.attrib.pop("style", "")
    for declared in filter(None, (part.strip() for part in style.split(";"))):
        name, _, value = (part.strip() for part in declared.partition(":"))
        if name in ("font", "font-size"):
            size = _FONT_SIZE.search(value)
            element.set("font-size", size[1] if size else FONT_SIZE)
        elif not name.startswith("font-"):
            element.set(name, value)
    for name in ("fill", "stroke"):
        value = element.get(name, "")
        if value in colours:
            element.set(name, f"var({colours[value]}, {value})")
