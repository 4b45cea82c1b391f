"""Configuration files: defaults, every problem at once, nothing coerced, nothing secret shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemons.config.controller import ControllerConfig
from daemons.values.settings import Automation
from shared.base.errors import InvalidInput
from shared.config.agent import AgentConfig
from shared.config.common import LogFormat, LogLevel
from shared.config.records import Range, keys
from shared.config.toml import load, parse
from tests.extent import examples


def problems(text: str, cls: type[object] = ControllerConfig) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        parse(text, cls, "c.toml")
    return [str(problem) for problem in caught.value.problems]


def test_an_empty_file_gives_the_defaults_of_the_design() -> None:
    config = parse("", ControllerConfig)
    assert config == ControllerConfig()
    assert (config.periods.report_s, config.periods.reconcile_s) == (5, 5)
    assert (config.periods.web_adjust_s, config.periods.decide_s, config.periods.probe_s) == (20, 900, 2)
    assert (config.timeouts.unreachable_after_s, config.timeouts.max_skew_s) == (15, 2)
    assert (config.policies.placement, config.policies.provisioning) == ("apc", "static")
    assert parse("", AgentConfig) == AgentConfig()


def test_every_key_can_be_set() -> None:
    config = parse(
        """
        name = "c1"
        periods = {report_s = 10, decide_s = 600}
        timeouts.unreachable_after_s = 30
        [limits]
        actions_per_node = 4
        [automation]
        level = "auto"
        hold_starts = true
        [policies]
        placement = "apc"
        [policies.params.apc]
        heads = 4
        tolerance = 0.01
        [log]
        level = "debug"
        format = "console"
        """,
        ControllerConfig,
    )
    assert config.name == "c1"
    assert config.periods.report_s == 10.0
    assert type(config.periods.report_s) is float
    assert config.timeouts.unreachable_after_s == 30
    assert config.limits.actions_per_node == 4
    assert (config.automation.level, config.automation.hold_starts) == (Automation.AUTO, True)
    assert config.policies.params == {"apc": {"heads": 4, "tolerance": 0.01}}
    assert (config.log.level, config.log.format) == (LogLevel.DEBUG, LogFormat.CONSOLE)


def test_all_problems_are_told_at_once_with_line_and_expectation() -> None:
    found = problems(
        """nme = "x"
[periods]
report_s = "5"
reconcile_s = true
decide_s = inf
unreachable_after_s = 3
[limits]
actions_total = 1.0
migrations_per_node = 0
[automation]
level = "automatic"
[log]
level = 3
"""
    )
    assert found == [
        "c.toml:1: nme: no such key (expected name)",
        "c.toml:6: periods.unreachable_after_s: no such key (expected timeouts.unreachable_after_s)",
        "c.toml:3: periods.report_s: is '5' (expected a number from 0.1 to 86400)",
        "c.toml:4: periods.reconcile_s: is true (expected a number from 0.1 to 86400)",
        "c.toml:5: periods.decide_s: is inf (expected a number from 0.1 to 86400)",
        "c.toml:9: limits.migrations_per_node: is 0 (expected a whole number from 1 to 100000)",
        "c.toml:8: limits.actions_total: is 1.0 (expected a whole number from 1 to 100000)",
        "c.toml:11: automation.level: is 'automatic' (expected one of advise, confirm, auto)",
        "c.toml:13: log.level: is 3 (expected one of debug, info, warning, error)",
    ]


def test_keys_are_held_against_each_other_unless_one_is_wrong_already() -> None:
    assert problems("[periods]\nreport_s = 15\n[timeouts]\nfence_after_s = 15\n") == [
        "c.toml: timeouts.unreachable_after_s: is 15.0 (expected more than periods.report_s = 15)",
        "c.toml:4: timeouts.fence_after_s: is 15.0 (expected more than timeouts.unreachable_after_s = 15)",
    ]
    assert problems("[limits]\nactions_total = 15\n") == [
        "c.toml:2: limits.actions_total: is 15 (expected at least limits.migrations_total = 16)",
    ]
    assert len(problems('[periods]\nreport_s = "x"\n[timeouts]\nunreachable_after_s = 3\nmax_skew_s = 1\n')) == 1


@pytest.mark.parametrize("text", ["bus = 'amqp://u:hunter2@b'", "[bus]\nurl = 'http://u:hunter2@b'", "[bus]\nurl = 1"])
def test_secrets_are_not_shown(text: str) -> None:
    (problem,) = problems(text)
    assert "hunter2" not in problem
    config = parse("[bus]\nurl = 'amqps://u:hunter2@b'", ControllerConfig)
    assert config.bus.url == "amqps://u:hunter2@b"
    assert "hunter2" not in repr(config)


def test_the_facts_of_a_node_come_from_its_type_unless_its_own() -> None:
    types = "[node_types.old]\ncore_mhz_factor = 0.5\nreserve_mib = 1024\n"
    config = parse(f'{types}[node]\ntype = "old"\nlabels = ["ssd", "gpu"]\n', AgentConfig)
    assert (config.core_mhz_factor, config.reserve_mib, config.node.labels) == (0.5, 1024, ("ssd", "gpu"))
    assert parse(f'{types}[node]\ntype = "old"\nreserve_mib = 0\n', AgentConfig).reserve_mib == 0
    assert parse(types, AgentConfig).core_mhz_factor == 1.0
    assert problems(f'{types}[node]\ntype = "new"\n', AgentConfig) == [
        "c.toml:5: node.type: is 'new' (expected a table [node_types.new])"
    ]


def test_history_and_encryption_have_sections_of_their_own() -> None:
    text = '[store.retention]\nevents_days = 3\n[bus.tls]\nca_file = "/ca.pem"\nserver_name = "broker"\n'
    config = parse(text, ControllerConfig)
    assert (config.store.retention.events_days, config.store.retention.jobs_days) == (3.0, 30.0)
    assert (config.bus.tls.ca_file, config.bus.tls.cert_file, config.bus.tls.server_name) == ("/ca.pem", "", "broker")
    assert parse('bus.tls.key_file = "/k"', AgentConfig).bus.tls.key_file == "/k"
    assert problems("[store.retention]\njobs_days = -1\nsamples_days = 6\n") == [
        "c.toml:2: store.retention.jobs_days: is -1 (expected a number from 0 to 36500)",
        "c.toml:3: store.retention.samples_days: is 6.0 (expected at least store.retention.fine_samples_days = 7)",
    ]


def test_problems_inside_arrays_and_tables_name_their_place() -> None:
    text = '[node]\nlabels = ["a", 3, "b c"]\n[node_types.x]\nreserve_mib = -1\nreserve = 1\n'
    assert problems(text, AgentConfig) == [
        "c.toml:2: node.labels[1]: is 3 (expected 1 to 128 characters without spaces, the first no '-')",
        "c.toml:2: node.labels[2]: is 'b c' (expected 1 to 128 characters without spaces, the first no '-')",
        "c.toml:5: node_types.x.reserve: no such key (expected node_types.x.reserve_mib)",
        "c.toml:4: node_types.x.reserve_mib: is -1 (expected a whole number from 0 to 1073741824)",
    ]


@dataclass(frozen=True, slots=True)
class Needy:
    """A file with a key that has no default."""

    count: Annotated[int, Range(1, 9)]
    table: Mapping[str, Annotated[float, Range(0, 1)]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Listed:
    """A file with an array of tables."""

    parts: tuple[Needy, ...]


def test_problems_inside_arrays_of_tables_name_their_line() -> None:
    text = "[[parts]]\ncount = 1\n\n[[parts]]\ncount = 10\n[[ parts ]] # the third\ncont = 1\n"
    assert problems(text, Listed) == [
        "c.toml:5: parts[1].count: is 10 (expected a whole number from 1 to 9)",
        "c.toml:7: parts[2].cont: no such key (expected parts[2].count)",
        "c.toml: parts[2].count: is missing (expected a whole number from 1 to 9)",
    ]


def test_a_missing_key_is_named() -> None:
    assert problems("", Needy) == ["c.toml: count: is missing (expected a whole number from 1 to 9)"]
    assert parse("count = 3\ntable.x = 1", Needy) == Needy(3, {"x": 1.0})
    assert problems("count = 3\ntable.x = 2", Needy) == ["c.toml:2: table.x: is 2 (expected a number from 0 to 1)"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[periods\n", "c.toml:1:9: "),
        ("a = 1\na = 2\n", "c.toml:2:6: "),
        ("a = " + "9" * 5000, "c.toml: "),
        ("name = " + "[" * 5000, "c.toml: "),
        ("name = 0x" + "f" * 5000, "larger whole number"),
        ("[limits]\nactions_total = 99999999999999999999999", "larger whole number"),
        ("name = 1979-05-27", "datetime.date"),
        ("x" * 3000 + " = 1", "no such key"),
        ('name = "' + "y" * 3000 + '"', "name: is 'yyyy"),
    ],
)
def test_hostile_text_becomes_one_short_problem(text: str, told: str) -> None:
    (problem,) = problems(text)
    assert told in problem
    assert len(problem) < 400  # with the names of all tables


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"name = 'a'\n#\xff\n", "c.toml:2: not UTF-8"), (b"#" * (1 << 20) + b"\n", "too large")],
)
def test_files_that_are_no_text_are_refused(tmp_path: Path, content: bytes, told: str) -> None:
    file = tmp_path / "c.toml"
    file.write_bytes(content)
    with pytest.raises(InvalidInput, match=told):
        load(file, ControllerConfig)


def test_missing_files_are_refused_and_good_ones_read(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    with pytest.raises(InvalidInput, match=r"c\.toml: No such file"):
        load(file, ControllerConfig)
    with pytest.raises(InvalidInput, match="directory"):
        load(tmp_path, ControllerConfig)
    file.write_text('name = "c2"\n')
    assert load(str(file), ControllerConfig).name == "c2"


@pytest.mark.parametrize("cls", [ControllerConfig, AgentConfig])
def test_every_listed_key_exists_and_says_what_it_holds(cls: type[ControllerConfig] | type[AgentConfig]) -> None:
    listed = list(keys(cls))
    assert len({key.name for key in listed}) == len(listed) > 10
    for key in listed:
        assert key.holds != "anything", key
        name = key.name.replace("*", "x")
        found = problems(f"{name} = {{}}" if key.holds != "a table" else f"{name} = 1", cls)
        told = [problem for problem in found if "is missing" not in problem]
        assert len(told) == 1
        assert key.holds in told[0]


@pytest.mark.parametrize("address", ["300.1.2.3", "::::", "beef"])
def test_an_address_of_a_node_is_one(address: str) -> None:
    assert problems(f'[node]\naddress = "{address}"\n', AgentConfig) == [
        f"c.toml:2: node.address: is '{address}' (expected an IP address, or nothing)"
    ]


@pytest.mark.full
@settings(max_examples=examples(100))
@given(st.text(max_size=200))
def test_any_text_is_configuration_or_invalid_input(text: str) -> None:
    try:
        config = parse(text, ControllerConfig)
    except InvalidInput:
        return
    assert isinstance(config, ControllerConfig)
