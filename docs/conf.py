"""Configure the documentation site: Sphinx with MyST and Furo (docs/adr/0036)."""

from __future__ import annotations

from importlib.metadata import version as version_of

project = "Trimtab"
author = "The Trimtab authors"
copyright = "The Trimtab authors, Apache License 2.0"
release = version = version_of("trimtab")

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"
exclude_patterns = ["images/*.md"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

html_theme = "furo"
html_title = "Trimtab"
html_static_path: list[str] = []
html_show_sourcelink = False
html_copy_source = False
pygments_style = "friendly"
