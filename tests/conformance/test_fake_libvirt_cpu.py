"""Who has the CPU of its host can go to hosts with the same CPU alone, and that shows before a move begins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shared.values.migration import lacks
from sim_backend.conformance.hypervisor_bench import Bench
from tests.conformance.fake_libvirt_rig import TEMPLATE, Fakes, Harness, fakes


@contextmanager
def with_cpu(folder: Path, cpu: str, model: str) -> Iterator[tuple[Fakes, Bench]]:
    """A VM with this `<cpu>` runs on h1; h2 has a CPU of this model."""
    with fakes(folder, durations_s={}) as made:
        made.template.write_text(TEMPLATE.replace("<devices>", f"{cpu}<devices>"))
        made.cluster.hosts["h2"].cpu_model = model
        for name in made.names:
            made.drivers[name].close()
            made.drivers[name] = made.driver(name)
        bench = Bench(Harness(made))
        bench.start()
        yield made, bench


@pytest.mark.parametrize(
    ("cpu", "model", "lacking"),
    [
        ("<cpu mode='host-passthrough'/>", "EPYC-Milan", ("cpu=EPYC",)),
        ("<cpu mode='host-model'/>", "EPYC-Milan", ("cpu=EPYC",)),
        ("<cpu mode='maximum'/>", "EPYC-Milan", ("cpu=EPYC",)),
        ("<cpu mode='host-passthrough'/>", "EPYC", ()),
        ("<cpu mode='custom' match='exact'><model>Westmere</model></cpu>", "EPYC-Milan", ()),
        ("", "EPYC-Milan", ()),
    ],
)
def test_what_a_target_lacks_of_its_cpu(tmp_path: Path, cpu: str, model: str, lacking: tuple[str, ...]) -> None:
    with with_cpu(tmp_path, cpu, model) as (made, bench):
        has = made.drivers["h2"].inventory().migration_has
        assert f"cpu={model}" in has
        assert lacks(has, bench.status().migration_needs) == lacking
