"""The reference as plain text and as plain data."""

from __future__ import annotations

import json

from daemons.cli.reference.files import FILES
from daemons.cli.reference.plain import WIDTH, object_of, text_of


def test_every_key_is_there_with_its_full_name_and_default() -> None:
    text = text_of(FILES["controller"])

    assert "controller.toml: /etc/trimtab/controller.toml\nCheck it with: trimtab-controller --check\n" in text
    assert "\n    periods.decide_s = 900\n        number: 0.1 to 86400 s; needs a restart\n        Length of a " in text
    assert "\n    windows.NAME.deadline (required)\n" in text
    assert '\n[notify.channels.NAME], kind = "email"\n' in text
    assert "\n    * `periods.decide_s` is greater than `timeouts.decide_limit_s`.\n" in text
    assert '\n    log.level = "info"\n' in text
    assert "; needs a reload\n" in text


def test_lines_are_short_but_for_defaults() -> None:
    long = [line for line in text_of(FILES["job"]).splitlines() if len(line) > WIDTH]

    assert long == []


def test_plain_data_can_be_written_as_json() -> None:
    data = json.loads(json.dumps(object_of(FILES["agent"])))
    tables = {table["name"]: table for table in data["tables"]}

    assert tables["periods"]["keys"] == [
        {
            "name": "periods.report_s",
            "type": "number",
            "values": "0.1 to 86400",
            "unit": "s",
            "required": False,
            "default": 5.0,
            "example": "",
            "change": "restart",
            "meaning": "Interval between two reports. Set `periods.report_s` of the controller to the same value.",
        }
    ]
    assert tables["libvirt.templates.*"]["optional"] is True
    assert data["rules"] != []
