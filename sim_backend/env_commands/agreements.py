"""The agreements that an advice comes to, as files for `trimtab env create`."""

from __future__ import annotations

from pathlib import Path

from daemons.capacity.advise.advise import name_of
from daemons.capacity.advise.values import Judged, Load
from daemons.capacity.coordination.values import FB, FLB_NUB
from daemons.manifests.agreement import read_agreement, understood
from daemons.manifests.agreement_text import table_of, to_toml
from shared.base.errors import Infeasible, InvalidInput, Problem
from shared.base.write_file import make_folder, write_file
from shared.values.agreement import UNITS_MAX, Agreement, WorkloadType

BATCH, WEB = "batch", "web"
_FILES = ("env-batch.toml", "env-web.toml")


def refuse_folder(folder: Path) -> None:
    """Raise `InvalidInput` where the files cannot be written without losing others."""
    make_folder("--write", folder)
    taken = [folder / name for name in _FILES if (folder / name).exists()]
    problems = [Problem("--write", f"{path} is there already", "a folder without it") for path in taken]
    if problems:
        raise InvalidInput(*problems)


def agreements(judged: Judged, load: Load, owner: str) -> list[Agreement]:
    """Return one agreement for each workload type of the load, coordinated if their model shares. Raises `Infeasible`
    if a specification cannot hold that many nodes."""
    setting = judged.option.setting
    shares = bool(load.jobs and load.web_peak) and setting.model in (FB, FLB_NUB)
    if setting.batch_lower + setting.web_lower > UNITS_MAX:
        raise Infeasible(f"a specification has at most {UNITS_MAX:,} nodes")
    made: list[Agreement] = []
    if load.jobs:
        made.append(
            Agreement(
                BATCH,
                owner,
                WorkloadType.BATCH,
                lower=setting.batch_lower,
                model=setting.model,
                lease_s=setting.lease_s,
                coordinated_with=WEB if shares else "",
                batch=setting.terms,
            )
        )
    if load.web_peak:
        made.append(
            Agreement(
                WEB,
                owner,
                WorkloadType.WEB,
                lower=setting.web_lower,
                model=setting.model,
                lease_s=setting.lease_s,
                shares=shares,
            )
        )
    return made


def write(judged: Judged, load: Load, owner: str, folder: Path) -> list[Path]:
    """Write one file for each agreement and read it back. Raises `InvalidInput` where that cannot be done."""
    written: list[Path] = []
    for agreement in agreements(judged, load, owner):
        path = folder / _FILES[agreement.workload is WorkloadType.WEB]
        heading = (
            f"# Recommended by `trimtab env advise`: {name_of(judged.option.setting)}.\n"
            f"# docs/how-to/environments.md explains every key.\n\n"
        )
        write_file("--write", path, heading + to_toml(table_of(understood(agreement))), new=True)
        read_agreement(path)
        written.append(path)
    return written
