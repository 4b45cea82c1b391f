"""Which files have a reference, and what it says of each beside its keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from shared.config.reference import Key, Section, rules, sections

CHANNELS = "notify.channels"


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file that Trimtab reads. name: as the command takes it; title: the usual name of the file; place: where it is
    ("": where its user has it); model: module and class that read it; page, guide, examples: paths in
    the repository; manual: name of the manual page, section 5; unit: the systemd unit that reads it ("": none)."""

    name: str
    title: str
    place: str
    model: str
    page: str
    manual: str
    guide: str
    check: str
    examples: tuple[str, ...] = ()
    unit: str = ""
    kinds: tuple[tuple[str, str], ...] = ()
    """Kinds of notification channels with the classes that read their keys."""

    @property
    def cls(self) -> type[Any]:
        """The class that reads the file. Its module is imported only now: some need much."""
        return _class_of(self.model)

    @property
    def sections(self) -> tuple[Section, ...]:
        """The tables of the file with their keys; for each kind of a table that is read by its driver, one more."""
        found = tuple(sections(self.cls))
        after = max((at for at, section in enumerate(found) if section.name.startswith("notify")), default=-1) + 1
        return (*found[:after], *self._channels(), *found[after:])

    @property
    def rules(self) -> tuple[str, ...]:
        """How the keys must relate, in words."""
        return rules(self.cls)

    def _channels(self) -> Iterator[Section]:
        for kind, model in self.kinds:
            (section,) = sections(_class_of(model), f"{CHANNELS}.*")
            name = Key(
                name=f"{CHANNELS}.*.kind",
                type="string",
                values=f'"{kind}"',
                unit="",
                default=None,
                is_required=True,
                meaning="Kind of the channel.",
                example=f'"{kind}"',
            )
            yield replace(section, keys=(name, *section.keys), is_optional=True, when=f'kind = "{kind}"')


def _class_of(model: str) -> type[Any]:
    module, _, name = model.partition(":")
    found: type[Any] = getattr(import_module(module), name)
    return found


FILES = {
    file.name: file
    for file in (
        ConfigFile(
            "controller",
            "controller.toml",
            "/etc/trimtab/controller.toml",
            model="daemons.config.controller:ControllerConfig",
            page="docs/reference/controller.md",
            manual="trimtab-controller.toml",
            guide="docs/how-to/running.md",
            check="trimtab-controller --check",
            examples=("examples/three-machines/controller.toml",),
            unit="trimtab-controller",
            kinds=(
                ("webhook", "daemons.drivers.notifiers.webhook:WebhookKeys"),
                ("email", "daemons.drivers.notifiers.mail:EmailKeys"),
                ("command", "daemons.drivers.notifiers.command:CommandKeys"),
            ),
        ),
        ConfigFile(
            "agent",
            "agent.toml",
            "/etc/trimtab/agent.toml",
            model="shared.config.agent:AgentConfig",
            page="docs/reference/agent.md",
            manual="trimtab-agent.toml",
            guide="docs/how-to/first-node.md",
            check="trimtab-agent --check",
            examples=("examples/three-machines/agent.toml", "examples/agent-process.toml"),
            unit="trimtab-agent",
        ),
        ConfigFile(
            "portal",
            "portal.toml",
            "/etc/trimtab-portal/portal.toml",
            model="daemons.config.portal:PortalConfig",
            page="docs/reference/portal-config.md",
            manual="trimtab-portal.toml",
            guide="docs/how-to/portal.md",
            check="trimtab-portal --check",
            unit="trimtab-portal",
        ),
        ConfigFile(
            "job",
            "job.toml",
            place="",
            model="daemons.manifests.job:JobFile",
            page="docs/reference/job-file.md",
            manual="trimtab-job.toml",
            guide="docs/how-to/jobs.md",
            check="trimtab jobs submit FILE --dry-run",
            examples=("examples/job.toml", "examples/gang.toml"),
        ),
        ConfigFile(
            "web",
            "web.toml",
            place="",
            model="daemons.manifests.web_app:WebFile",
            page="docs/reference/web-file.md",
            manual="trimtab-web.toml",
            guide="docs/how-to/web.md",
            check="trimtab web submit FILE --dry-run",
            examples=("examples/web.toml",),
        ),
        ConfigFile(
            "agreement",
            "agreement.toml",
            place="",
            model="daemons.manifests.agreement:AgreementFile",
            page="docs/reference/agreement-file.md",
            manual="trimtab-agreement.toml",
            guide="docs/how-to/environments.md",
            check="trimtab env create FILE --dry-run",
            examples=("examples/env-batch.toml", "examples/env-web.toml"),
        ),
        ConfigFile(
            "vms",
            "vms.toml",
            place="",
            model="daemons.manifests.vm_terms:VmFile",
            page="docs/reference/vms-file.md",
            manual="trimtab-vms.toml",
            guide="docs/how-to/existing-vms.md",
            check="trimtab vms adopt --all --terms FILE --dry-run",
            examples=("examples/vms.toml",),
        ),
        ConfigFile(
            "load",
            "load.toml",
            place="",
            model="daemons.manifests.load:LoadFile",
            page="docs/reference/load-file.md",
            manual="trimtab-load.toml",
            guide="docs/reference/cli/load.md",
            check="trimtab load FILE --dry-run",
            examples=("examples/load.toml",),
        ),
        ConfigFile(
            "operator",
            "operator.toml",
            "~/.config/trimtab/operator.toml",
            model="daemons.cli.connection:OperatorConfig",
            page="docs/reference/cli/README.md",
            manual="trimtab-operator.toml",
            guide="docs/how-to/broker.md",
            check="trimtab status",
            examples=("examples/three-machines/operator.toml",),
        ),
    )
}
