"""`trimtab env create FILE.xml` and `trimtab env export`, against a real controller over the bus in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemons.manifests.agreement import read_agreement
from daemons.values.settings import PolicyChoice
from tests.support.operator_harness import Rig

BATCH = (
    'name = "night"\nowner = "kim"\nworkload = "batch"\nlower = 2\nusers = ["joe", "ann"]\nmodel = "flb-nub"\n'
    '[scheduling]\npolicy = "edf"\nparams = {preempt = false}\n[batch]\non_reclaim = "kill"\n'
)


@pytest.fixture
def rig() -> Rig:
    made = Rig(nodes=4, placement=PolicyChoice("first-fit"))
    made.run(30.0)
    made.user = "owner.kim"
    return made


def test_an_agreement_comes_back_in_either_notation(rig: Rig, tmp_path: Path) -> None:
    """Given an environment made of a TOML file, when it is exported as XML, ended and created from that, then the
    controller holds the same agreement; so does its TOML export."""
    written = tmp_path / "night.toml"
    written.write_text(BATCH, "utf-8")
    rig.asked("env", "create", written)
    before = rig.asked("env", "show", "night")["environment"]["agreement"]
    exported = rig.trimtab("env", "export", "night", "--format", "xml")
    (tmp_path / "night.xml").write_text(exported.stdout, "utf-8")
    (tmp_path / "again.toml").write_text(rig.trimtab("env", "export", "night").stdout, "utf-8")
    rig.asked("env", "destroy", "night", "--yes", "--wait", 300)

    created = rig.asked("env", "create", tmp_path / "night.xml")

    assert (created["done"], created["agreement"]["users"]) == (True, ["joe", "ann"])
    assert rig.asked("env", "show", "night")["environment"]["agreement"] == before
    assert read_agreement(tmp_path / "again.toml") == read_agreement(written)
    stated = rig.asked("env", "export", "night", "--format", "xml")
    assert (stated["format"], stated["text"]) == ("xml", exported.stdout)


def test_nothing_is_sent_of_a_file_that_means_harm(rig: Rig, tmp_path: Path) -> None:
    """Given a reference to a file of the machine, then exit status 2, and neither its content nor a message leaves."""
    secret = tmp_path / "secret"
    secret.write_text("do not tell", "utf-8")
    file = tmp_path / "env.xml"
    head = f'<!DOCTYPE RE_agreement [<!ENTITY x SYSTEM "{secret.as_uri()}">]>'
    file.write_text(f"{head}<RE_agreement><name>night</name><owner>&x;</owner></RE_agreement>", "utf-8")
    published = rig.published

    error = rig.refused("env", "create", file, status=2)

    assert error["problems"][0]["where"] == f"{file}:1"
    assert (error["problems"][0]["what"], rig.published) == ("holds a document type", published)
    assert "do not tell" not in str(error)
