"""The reference as manual pages."""

from __future__ import annotations

from daemons.cli.reference.files import FILES
from daemons.cli.reference.manpage import file_pages, manual_of


def test_every_file_has_its_page() -> None:
    assert sorted(file_pages("1")) == sorted(f"{file.manual}.5" for file in FILES.values())


def test_a_page_has_keys_with_default_and_what_a_change_needs() -> None:
    page = manual_of(FILES["controller"], "1.2")

    assert page.startswith('.TH "TRIMTAB\\-CONTROLLER.TOML" 5 "" "trimtab 1.2" "Trimtab"\n')
    assert '.SS "[periods]"\nIntervals of recurring work.\n.TP\n.B report_s\n' in page
    assert "\n.br\nnumber: 0.1 to 86400 s. Default: 900. Restart.\n" in page
    assert ".SS \"[notify.channels.NAME], kind = 'email'\"\n" in page
    assert "\n.IP \\(bu 2\nperiods.decide_s is greater than timeouts.decide_limit_s.\n" in page
    assert page.endswith("\n.BR trimtab\\-controller (8)\n")


def test_a_page_of_a_file_for_a_command_says_so() -> None:
    page = manual_of(FILES["job"], "1.2")

    assert "SIGHUP" not in page
    assert page.endswith("\n.BR trimtab (1)\n")
