"""Types of environment as another package would bring them: installed for the time of a test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from shared.ports import plugins


@contextmanager
def installed(folder: Path, types: Mapping[str, str]) -> Iterator[None]:
    """A distribution in `folder` with entry points for types, `module:Class` by name."""
    info = folder / "trimtab_other_types-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: trimtab-other-types\nVersion: 1.0\n", "utf-8")
    points = "".join(f"{name} = {target}\n" for name, target in types.items())
    (info / "entry_points.txt").write_text(f"[{plugins.ENVIRONMENTS}]\n{points}", "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        plugins.forget()
        yield
    plugins.forget()
