"""The parts of a controller's features, for tests that look into them."""

from __future__ import annotations

from typing import TypeVar

from daemons.controller.admission.admission import Admission
from daemons.controller.admission.feature import AdmissionFeature
from daemons.controller.contract.feature import Feature
from daemons.controller.core.controller import Controller
from daemons.controller.energy.feature import EnergyFeature
from daemons.controller.energy.metering import EnergyMeter
from daemons.controller.environments.coordination import Coordination
from daemons.controller.environments.feature import EnvironmentsFeature
from daemons.controller.environments.requests import EnvironmentRequests
from daemons.controller.interference.feature import InterferenceFeature
from daemons.controller.interference.profiles import InterferenceProfiles
from daemons.controller.interference.standard_jobs import StandardJobs
from daemons.controller.nodes.feature import NodesFeature
from daemons.controller.nodes.service import NodeLifecycle
from daemons.controller.notifications.feature import NotificationsFeature
from daemons.controller.notifications.rules import NotificationRules
from daemons.controller.web.apps import WebApps
from daemons.controller.web.autoscaling import Autoscaler
from daemons.controller.web.feature import WebFeature
from daemons.controller.web.load_balancing import LoadBalancing
from daemons.controller.windows.feature import WindowsFeature
from daemons.controller.windows.windows import WindowBook

F = TypeVar("F", bound=Feature)


def feature(controller: Controller, kind: type[F]) -> F:
    """Return a controller's feature of a kind."""
    return next(each for each in controller.features if isinstance(each, kind))


def windows(controller: Controller) -> WindowBook:
    return feature(controller, WindowsFeature).book


def profiles(controller: Controller) -> InterferenceProfiles:
    return feature(controller, InterferenceFeature).profiles


def standard_jobs(controller: Controller) -> StandardJobs:
    return feature(controller, InterferenceFeature).standard_jobs


def lifecycle(controller: Controller) -> NodeLifecycle:
    return feature(controller, NodesFeature).lifecycle


def energy(controller: Controller) -> EnergyMeter:
    return feature(controller, EnergyFeature).meter


def admission(controller: Controller) -> Admission:
    return feature(controller, AdmissionFeature).admission


def coordination(controller: Controller) -> Coordination:
    return feature(controller, EnvironmentsFeature).coordination


def agreements(controller: Controller) -> EnvironmentRequests:
    return feature(controller, EnvironmentsFeature).agreements


def web_apps(controller: Controller) -> WebApps:
    return feature(controller, WebFeature).apps


def autoscaler(controller: Controller) -> Autoscaler:
    return feature(controller, WebFeature).autoscaler


def balancing(controller: Controller) -> LoadBalancing:
    return feature(controller, WebFeature).balancing


def notifying(controller: Controller) -> NotificationRules:
    return feature(controller, NotificationsFeature).rules
