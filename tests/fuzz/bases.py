"""Whole files of every kind that Trimtab reads: the examples, and what the product itself writes."""

from __future__ import annotations

import json
import tomllib
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tests.fuzz.scene import ROOT, Scene
from tests.fuzz.wire import Wire

EXAMPLES = ROOT / "examples"
NOT_READ = ("monitoring/", "environment-type/pyproject.toml", "reference/")
"""Examples for other programs than Trimtab, and every key commented out: tests/conformance/test_reference.py."""
Make = Callable[[Scene], bytes]


def examples() -> Iterator[Path]:
    """The examples that Trimtab reads."""
    for path in sorted(EXAMPLES.rglob("*")):
        name = str(path.relative_to(EXAMPLES))
        if path.is_file() and path.suffix not in (".py", ".pyc", ".md") and not name.startswith(NOT_READ):
            yield path


def name_of(example: Path) -> str:
    """Its name in a case's folder: with its folder where that is not the first."""
    return "-".join(example.relative_to(EXAMPLES).parts)


def _example(path: Path, _: Scene) -> bytes:
    """It; its files that are beside it are so in the folder, too."""
    return path.read_bytes()


def _small_provision(series: bool, _: Scene) -> bytes:
    """A scenario that is computed within a tenth of a second."""
    text = (EXAMPLES / f"provision-{'day-ahead' if series else 'thesis'}.toml").read_text("utf-8")
    for old, new in (
        ("submission_end = 64", "submission_end = 5"),
        ("deadline = 92", "deadline = 12"),
        ("max = 5", "max = 3"),
        ("profile = [2.0, -1.04167e-4, 1.80845e-9]", "profile = [1.2]"),
        ("confidence = 0.9999", "confidence = 0.9"),
    ):
        assert old in text, old
        text = text.replace(old, new)
    return text.encode()


def _keys(kind: Callable[[], type[Any]], before: str, after: str, _: Scene) -> bytes:
    """Every key that a daemon's file may have, with its default."""
    from shared.config import records

    lines: list[str] = []
    sections: dict[str, list[str]] = {}
    for key in records.keys(kind()):
        section, _dot, name = key.name.rpartition(".")
        if key.default is None or "*" in section:
            continue
        value = _toml(key.default)
        if value:
            sections.setdefault(section, []).append(f"{name} = {value}")
    for section in sorted(sections):
        lines += ([f"[{section}]"] if section else []) + sections[section]
    return "\n".join((before, *lines, after)).encode()


def _toml(value: Any) -> str:
    """A value as TOML; "" for what is not written."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(str(value))
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(each) for each in value)}]"
    return ""


def _controller() -> type[Any]:
    from daemons.config.controller import ControllerConfig

    return ControllerConfig


def _agent() -> type[Any]:
    from shared.config.agent import AgentConfig

    return AgentConfig


def _portal() -> type[Any]:
    from daemons.config.portal import PortalConfig

    return PortalConfig


WINDOW = """
[windows.night]
submit_from = "20:00"
submit_until = "02:00"
deadline = "06:00"
timezone = "Europe/Berlin"
"""
TEMPLATE = """
[libvirt.templates.render]
file = "{folder}/three-machines-templates-render.xml"
volume = "debian-12.qcow2"
[libvirt.templates.shop]
file = "{folder}/three-machines-templates-shop.xml"
volume = "shop.qcow2"
first_address = "192.0.2.101"
"""


def _agent_of_templates(scene: Scene) -> bytes:
    return b'[node]\nname = "n1"\n[hypervisor]\ndriver = "libvirt"' + TEMPLATE.format(folder=scene.folder).encode()


def _accounts(scene: Scene) -> bytes:
    return f'public_url = "https://p.example:8443"\n[store]\nurl = "sqlite:///{scene.folder}/portal.db"\n'.encode()


def _agreement(_: Scene) -> bytes:
    from daemons.manifests.agreement_xml import to_xml

    return to_xml(tomllib.loads((EXAMPLES / "env-batch.toml").read_text("utf-8"))).encode()


def _saved(scene: Scene) -> bytes:
    """What `trimtab snapshot save` writes of a cluster at work."""
    wire = Wire(nodes=2)
    wire.run(60.0)
    (scene.folder / "small.toml").write_bytes(SMALL_JOB)
    for words in (["jobs", "submit", "small.toml"], ["snapshot", "save", "saved"]):
        ended = scene.trimtab(words, wire=wire)
        assert ended.status == 0, ended
        wire.run(30.0)
    return (scene.folder / "saved").read_bytes()


def _saved_part(part: int, scene: Scene) -> bytes:
    """A line of a saved request, unpacked."""
    return saved_lines(scene.bases["saved"])[part]


def saved_lines(saved: bytes) -> list[bytes]:
    """The lines of a saved request, each of which is packed for itself."""
    lines = []
    while saved:
        expand = zlib.decompressobj(wbits=31)
        lines.append(expand.decompress(saved))
        saved = expand.unused_data
    return lines


RULES = b"""[rules]
node_anti_affinity = ["n2"]
vm_anti_affinity = ["db-1"]
anti_affinity = "db"
anti_affinity_scope = "rack"
label_anti_affinity = ["old"]
no_migration = true

[[rules.preferred]]
label_affinity = "ssd"
weight = 20
"""
SMALL_JOB = b"""name = "small"
[[stages]]
work_mcycles = 1000000
max_mhz = 1000
memory_mib = 500
[goal]
within_s = 7200
"""


def _store(scene: Scene) -> bytes:
    from tests.support.store_samples import made_url

    made_url(scene.folder / "store.db")
    return (scene.folder / "store.db").read_bytes()


def _journal(scene: Scene) -> bytes:
    from contextlib import closing

    from agents.core.journal import AgentStarted, Reported, TermSeen
    from agents.disk_journal import DiskJournal

    with closing(DiskJournal(scene.folder / "journal")) as journal:
        for record in (AgentStarted(1, "boot"), TermSeen(3), Reported("a"), TermSeen(4)):
            journal.append(record)
    return (scene.folder / "journal").read_bytes()


def _record(scene: Scene) -> bytes:
    from agents.hypervisors.process.record import FILE, Record, write
    from shared.values.vms import VmSpec, VmState

    write(
        scene.folder,
        Record.of(VmSpec("a#0", 1, 1, memory_mib=500, vcpus=1, cpu_mhz=1_000.0), "boot", VmState.RUNNING, 1),
    )
    return (scene.folder / FILE).read_bytes()


METRICS = b"""# TYPE trimtab_flow_requests counter
trimtab_flow_requests_total{flow="pages",outcome="served"} 100
trimtab_flow_requests_total{flow="pages",outcome="rejected"} 1
# TYPE trimtab_flow_queued gauge
trimtab_flow_queued{flow="pages"} 2
# TYPE trimtab_flow_seconds histogram
trimtab_flow_seconds_bucket{flow="pages",le="0.1"} 50
trimtab_flow_seconds_bucket{flow="pages",le="+Inf"} 100
trimtab_flow_seconds_sum{flow="pages"} 12.5
trimtab_flow_seconds_count{flow="pages"} 100
"""
REQUESTS = b"t_s,bytes,requests\n3600,1,50\n3660,1,10\n10800,1,100\n"
PRICES = b"hour,price_eur_per_mwh\n" + b"".join(
    b"2022-06-%02dT%02d:00,%d.5\n" % (11 + hour // 24, hour % 24, 100 + hour) for hour in range(48)
)
LOG = b"".join(b"%d %d -1 900 1 -1 -1 1 900 -1 1 1 1 1 1 -1 -1 -1\n" % (n + 1, n * 3_000) for n in range(20))
ASSURED = b"time,application,servers,memory_gib\n" + b"".join(
    b"2026-03-%02dT%02d:00,%s,%d,9\n" % (2 + day, hour, name, 1 + hour % 3)
    for day in range(2)
    for hour in range(0, 24, 4)
    for name in (b"shop", b"mail")
)
HELPER = b'packages = ["nginx", "lib*"]\ndependencies = ["libc6"]\nuser = "root"\n'

MADE: dict[str, Make] = {
    **{name_of(path): partial(_example, path) for path in examples()},
    "provision-small.toml": partial(_small_provision, False),
    "provision-series.toml": partial(_small_provision, True),
    "controller-keys.toml": partial(_keys, _controller, "", WINDOW),
    "agent-keys.toml": partial(_keys, _agent, "", ""),
    "portal-keys.toml": partial(_keys, _portal, 'public_url = "https://p.example:8443"', ""),
    "accounts.toml": _accounts,
    "agent-templates.toml": _agent_of_templates,
    "env-batch.xml": _agreement,
    "small.toml": lambda _: SMALL_JOB,
    "rules.toml": lambda _: RULES,
    "metrics.txt": lambda _: METRICS,
    "requests.csv": lambda _: REQUESTS,
    "days.csv": lambda _: PRICES,
    "days.swf": lambda _: LOG,
    "assure-small.csv": lambda _: ASSURED,
    "helper.toml": lambda _: HELPER,
    "secret": lambda _: b"a-long-password\n",
    "saved": _saved,
    "saved-header.json": partial(_saved_part, 0),
    "saved-request.json": partial(_saved_part, 1),
    "store.db": _store,
    "journal": _journal,
    "record.json": _record,
}
for unit in ("controller", "agent", "portal"):
    MADE[f"debian-{unit}.toml"] = partial(_example, ROOT / "systemd" / "debian" / f"trimtab-{unit}" / f"{unit}.toml")
