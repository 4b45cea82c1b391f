"""`trimtab sim coordinate`: batch jobs and a web demand that share nodes, under a coordination model."""

from __future__ import annotations

from pathlib import Path

import click

from daemons.capacity.coordination.file import LoadedScenario, read
from daemons.capacity.coordination.runs import coordinate as play
from daemons.cli.output import emit, output_option, two_columns
from daemons.cli.waiting import saying_what_goes_on
from shared.base.errors import Infeasible


@click.command()
@click.argument("scenario", metavar="SCENARIO.toml", type=click.Path(path_type=Path))
@output_option
def coordinate(scenario: Path) -> None:
    """Replay a log of batch jobs beside the demand of a web environment, under the sharing model of SCENARIO.toml.

    \b
    Example:
      trimtab sim coordinate examples/coordinate.toml
    """
    with saying_what_goes_on("simulating"):
        given = read(scenario)
        try:
            outcome = play(given.jobs, given.demand, given.scenario.setting())
        except Infeasible as error:
            raise Infeasible(f"{scenario}: web.demand: {error}") from error
    emit(outcome.to_json(), lambda: two_columns(_title(given), outcome.to_json()))


def _title(given: LoadedScenario) -> str:
    setting = given.scenario.setting()
    both = setting.batch_lower + setting.web_lower
    return f"{setting.model}, {both} nodes" if both else setting.model
