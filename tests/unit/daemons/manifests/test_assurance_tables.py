"""Reservations in agreements: what a file says, what is wrong with it, and the commands about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from daemons.config.controller import ControllerConfig
from daemons.manifests.agreement import read_agreement, understood
from daemons.manifests.agreement_text import table_of, to_toml
from daemons.manifests.agreement_xml import to_xml
from daemons.manifests.demand import demand_of
from daemons.service.main import check
from daemons.values.settings import PolicyChoice
from shared.base.errors import InvalidInput
from shared.config.toml import parse
from shared.values.agreement import Agreement
from shared.values.reservation import Calendar, ServiceClass, Share
from tests.support.operator_harness import Rig

HEAD = 'name = "shop"\nowner = "kim"\nworkload = "web"\nmodel = "flb-nub"\nlower = 0\n'
SHARE = '[[assurance.share]]\nclass = "guaranteed"\nunits = 2\n'
SOFT = '[[assurance.share]]\nclass = "predictable"\ntheta = 0.95\n'
SLOTS = "[[assurance.slot]]\nfirst = 0\nlast = 23\nunits = [0, 2]\n"


def read(tmp_path: Path, text: str, name: str = "env.toml") -> Agreement:
    (tmp_path / name).write_text(text, "utf-8")
    return read_agreement(tmp_path / name)


def wrong(tmp_path: Path, text: str) -> str:
    with pytest.raises(InvalidInput) as caught:
        read(tmp_path, text)
    return str(caught.value)


def test_a_declared_demand(tmp_path: Path) -> None:
    timing = '[assurance]\ntimezone = "Europe/Berlin"\nstart = "2026-12-01 08:00"\nend = "2027-01-01"\n'
    slots = "[[assurance.slot]]\nfirst = 0\nlast = 7\nunits = [0, 3]\nchances = [0.75, 0.25]\n"
    slots += "[[assurance.slot]]\nfirst = 8\nunits = [1]\n[[assurance.slot]]\nfirst = 9\nlast = 23\nunits = [2]\n"
    found = read(tmp_path, HEAD + timing + SHARE + SOFT + slots).assurance
    assert found is not None
    assert found.shares == (Share(ServiceClass.GUARANTEED, 2), Share(ServiceClass.PREDICTABLE, None, 0.95))
    assert found.demand[7].probabilities == (0.75, 0.0, 0.0, 0.25)
    assert [len(found.demand[slot].probabilities) - 1 for slot in (8, 9, 23)] == [1, 2, 2]
    assert (found.start_s, found.end_s) == (1_796_108_400.0, 1_798_758_000.0)


def test_what_is_exported_is_read_as_the_same(tmp_path: Path) -> None:
    before = read(tmp_path, HEAD + SHARE + SOFT + SLOTS)
    table = table_of(understood(before))
    assert read(tmp_path, to_toml(table)) == before
    assert read(tmp_path, to_xml(table), "env.xml") == before


def test_history_leaves_the_demand_open(tmp_path: Path) -> None:
    found = read(tmp_path, HEAD + '[assurance]\ndemand = "history"\ncalendar = "workdays"\n' + SHARE).assurance
    assert found is not None
    assert (found.demand, found.slots) == ((), 48)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SLOTS, "assurance.share"),
        (SHARE, "history"),
        (SHARE + SLOTS + SLOTS, "slot 0 is there 2 times"),
        (SHARE + SLOTS.replace("23", "22"), "slot 23 is there 0 times"),
        (SHARE + SLOTS.replace("23", "24"), "slots from 0 to 23"),
        (SHARE + SLOTS + "chances = [0.5, 0.4]\n", "sum to 1"),
        (SHARE + SLOTS + "chances = [1.0]\n", "as many chances as units"),
        (SHARE + SLOTS.replace("[0, 2]", "[2, 2]"), "each once"),
        (SHARE + SLOTS.replace("[0, 2]", "[-1, 2]"), "from 0 to"),
        (SOFT.replace("0.95", "1.0") + SLOTS, "1 is class guaranteed"),
        (SOFT.replace("theta = 0.95\n", "") + SLOTS, "above 0 and below 1"),
        (SHARE.replace("units = 2\n", "") + SOFT + SLOTS, "units in all shares but the last"),
        ("[assurance]\nslot_s = 7000\n" + SHARE + SLOTS, "whole number of slots"),
        ('[assurance]\ntimezone = "Mars/North"\n' + SHARE + SLOTS, "a time zone such as"),
        ('[assurance]\nstart = "2026-12-01"\nend = "2026-11-01"\n' + SHARE + SLOTS, "later than start"),
        ('[assurance]\nstart = "2026-02-31"\n' + SHARE + SLOTS, "days that there are"),
        ('[assurance]\ndemand = "none.csv"\n' + SHARE, "No such file"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, said: str) -> None:
    assert said in wrong(tmp_path, HEAD + text)


def test_the_lower_bound_is_guaranteed(tmp_path: Path) -> None:
    text = HEAD.replace("lower = 0", "lower = 3")
    assert "at most 2" in wrong(tmp_path, text + SHARE + SLOTS)
    assert read(tmp_path, text + SHARE.replace("2", "3") + SLOTS).lower == 3


# --- demand from files ------------------------------------------------------------------------------------------------


def demand(tmp_path: Path, text: str, calendar: Calendar = Calendar.HOUR_OF_DAY) -> Any:
    (tmp_path / "demand.csv").write_text(text, "utf-8")
    return demand_of(tmp_path / "demand.csv", calendar, 43_200.0, "Europe/Berlin")


def test_demand_of_several_applications_is_added_up(tmp_path: Path) -> None:
    """Given two samples in a slot, then the larger sum counts; two days make two observations."""
    rows = "time,application,servers\n0,a,1\n0,b,2\n600,a,2\n600,b,2\n50000,a,0\n86400,a,1\n140000,b,5\n"
    morning, evening = demand(tmp_path, rows)
    assert (morning.probabilities, morning.observations) == ((0.0, 0.5, 0.0, 0.0, 0.5), 2)
    assert evening.probabilities == (0.5, 0.0, 0.0, 0.0, 0.0, 0.5)


def test_times_with_an_offset_are_those_of_the_local_clock(tmp_path: Path) -> None:
    rows = "time,servers\n2026-06-01T23:30:00+00:00,3\n2026-06-02T13:00,1\n"  # half past one in Berlin
    morning, evening = demand(tmp_path, rows)
    assert (len(morning.probabilities), len(evening.probabilities)) == (4, 2)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("time,servers\n0,-1\n", "demand.csv:2: servers: is '-1'"),
        ("time,servers\n0,1\n0,2\n", "each time once"),
        ("time,servers\n0,1\n", "no demand in 1 of 2 slots: 1"),
        ("time,servers\nnoon,1\n", "ISO 8601"),
        ("time,servers\n0,1,2\n", "has 3 columns"),
        ("when,servers\n", "time,application,servers"),
        ("time,servers\n", "has no demand"),
        ("time,servers\nnan,1\n", "seconds from a midnight, 0 to 1e+11"),
    ],
)
def test_files_of_demand_that_cannot_be_used(tmp_path: Path, rows: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        demand(tmp_path, rows)
    assert said in str(caught.value)


def test_a_calendar_that_knows_days_needs_dates(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="must know the day"):
        demand(tmp_path, "time,servers\n0,1\n", Calendar.WORKDAYS)


# --- the commands -----------------------------------------------------------------------------------------------------


@pytest.fixture
def rig() -> Rig:
    made = Rig(nodes=4, placement=PolicyChoice("first-fit"), admission=PolicyChoice("statistical"))
    made.run(30.0)
    return made


def test_a_reservation_is_checked_made_shown_and_changed(rig: Rig, tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(HEAD + SHARE + SLOTS, "utf-8")
    checked = rig.asked("assurance", "check", file, "--assure", 0.9)
    assert (checked["outcome"], len(checked["splits"])) == ("admitted", 1)
    assert rig.asked("env", "list")["environments"] == []

    rig.asked("env", "create", file)
    row = rig.asked("assurance", "show")["environments"][0]
    assert (row["name"], row["reserved"], row["shares"][0]["promised"]) == ("shop", True, 1.0)
    assert len(rig.asked("assurance", "show", "shop")["environments"][0]["slots"]) == 24

    file.write_text(HEAD + SHARE.replace("2", "9") + SLOTS.replace("2]", "9]"), "utf-8")
    found = rig.trimtab("assurance", "check", file, "--output", "json")
    assert found.exit_code == 1
    assert '"outcome": "offered"' in found.stdout
    assert rig.refused("assurance", "reserve", file)["code"] == "share-offered"
    file.write_text(HEAD + SHARE.replace("2", "4") + SLOTS.replace("2]", "4]"), "utf-8")
    assert rig.asked("assurance", "reserve", file)["verdict"]["outcome"] == "admitted"


def test_people_are_told_in_tables(rig: Rig, tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(HEAD + SHARE + SLOTS, "utf-8")
    rig.asked("env", "create", file)
    for words in (("show",), ("show", "shop"), ("check", file, "--assure", "0.9")):
        found = rig.trimtab("assurance", *words)
        assert found.exit_code == 0, found.output
        assert "guaranteed" in found.stdout
    file.write_text(HEAD + SHARE.replace("2", "9") + SLOTS.replace("2]", "9]"), "utf-8")
    assert "offered of servers" in rig.trimtab("assurance", "check", file).stdout


def test_an_owner_does_not_see_what_others_have_reserved(rig: Rig, tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(HEAD + SHARE + SLOTS, "utf-8")
    rig.asked("env", "create", file)
    rig.user = "owner.lee"
    assert rig.asked("assurance", "show")["environments"] == []
    assert rig.asked("assurance", "show")["forecast"] == []
    assert rig.refused("assurance", "check", file)["code"] == "not-allowed"


# --- configuration ----------------------------------------------------------------------------------------------------


def test_a_configuration_that_cannot_be_is_refused_whole() -> None:
    text = '[policies]\nadmission = "nobody"\n[assurance]\ntimezone = "Mars/North"\nwindows = [4, 4]\n'
    with pytest.raises(InvalidInput) as caught:
        check(parse(text, ControllerConfig))
    told = str(caught.value)
    assert all(each in told for each in ("policies.admission", "assurance.timezone", "assurance.windows"))
