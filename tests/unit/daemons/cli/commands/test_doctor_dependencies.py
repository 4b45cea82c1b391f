"""`trimtab doctor` looks at what controller and command need, which is more than an agent's."""

from __future__ import annotations

from daemons.cli.commands.doctor import examine


def test_dependencies_of_the_agent_and_of_the_controller_are_looked_at() -> None:
    """Given an installation, then the base and the extra `controller` are checked, and no other extra."""
    names = {check.name.removeprefix("dependency ") for check in examine() if check.name.startswith("dependency ")}

    assert {"pika", "msgspec", "numpy", "scipy", "click", "sqlalchemy"} <= names
    assert names.isdisjoint({"starlette", "psycopg", "hypothesis", "libvirt-python"})
