"""`python -m daemons.cli.code_pages FOLDER`: write the tables of `codes.md`, `events.md` and `alarms.md` in a folder of
the documentation again, below the marker of each page."""

from __future__ import annotations

from pathlib import Path

import click

from daemons.codes.pages import PAGES, generated
from shared.base.write_file import write_file


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def write(folder: Path) -> None:
    """Write the tables of codes, events and alarms into the pages in FOLDER."""
    for name in PAGES:
        file = folder / f"{name}.md"
        write_file(str(folder), file, generated(name, file.read_text("utf-8")))


if __name__ == "__main__":
    write()
