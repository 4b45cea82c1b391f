"""Submitting by form and by file: the same words as of the command, all at once, one answer each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shared.protocol.operator_messages import ActivateEnvironment, CreateEnvironment
from shared.values.agreement import Agreement, WorkloadType
from tests.portal.scene import URL, Scene, scene

FORM = "/workloads/submit"
GOOD = {"name": "render", "stages[0].work_mcycles": "1000", "stages[0].max_mhz": "1000", "do": "submit"}
FILE = 'name = "{}"\n[[stages]]\nwork_mcycles = 1000\nmax_mhz = 1000\nmemory_mib = {}\n'


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Four nodes, and an environment of acme's where bob may submit."""
    with scene(tmp_path_factory.mktemp("submit"), nodes=4) as found:
        found.ask(CreateEnvironment("c", Agreement("batch", "acme", WorkloadType.BATCH, lower=1, users=("bob",))))
        found.ask(CreateEnvironment("d", Agreement("theirs", "other", WorkloadType.BATCH, lower=1)))
        found.ask(ActivateEnvironment("v", "batch"))
        found.run(60.0)
        yield found


@pytest.fixture
def made(whole: Scene) -> Scene:
    """The same for all tests of this file, which take different names."""
    whole.controller_client.asked.clear()
    return whole


def test_three_mistakes_are_three_messages_each_beside_its_field(made: Scene) -> None:
    jane = made.browser("jane")
    bad = GOOD | {"name": "a b", "instances": "many", "stages[0].max_mhz": "-1"}

    answer = jane.post(FORM, bad)

    assert answer.status_code == 422
    assert "Correct these 3 problems:" in answer.text
    assert (
        'id="p-instances">instances is &#39;many&#39; (expected a whole number from 1 to 65536)</span>' in answer.text
    )
    assert 'aria-invalid="true" aria-describedby="p-stages[0].max_mhz"' in answer.text
    assert 'value="many"' in answer.text
    assert made.controller_client.asked == []


def test_a_job_is_submitted_by_form(made: Scene) -> None:
    jane = made.browser("jane")

    answer = jane.post(FORM, GOOD | {"why": "nightly"})
    again = jane.post(FORM, GOOD)

    assert (answer.status_code, answer.headers["location"]) == (303, "/workloads/jobs/render")
    assert made.controller_client.asked[0][::2] == ("operator.jane", "nightly")
    assert again.status_code == 409
    assert "render" in again.text
    assert jane.get("/workloads/jobs/render").status_code == 200


def test_only_checking_submits_nothing(made: Scene) -> None:
    answer = made.browser("jane").post(FORM, GOOD | {"do": "check", "stages[0].memory_mib": "512"})

    assert answer.status_code == 200
    assert "Nothing was submitted." in answer.text
    assert "3 of 3 nodes have the labels, vCPUs and free memory for its VM now" in answer.text
    assert made.controller_client.asked == []


def test_a_check_shows_plain_values_alone(made: Scene) -> None:
    """A table, such as the resource profile, would be shown as the names of its keys."""
    profile = "[resource_profile]\ncpu = 0.5\nio = 0.2\n"
    text = FILE.format("render", 512).replace("[[stages]]", f"{profile}[[stages]]")

    answer = made.browser("jane").post(FORM, {"toml": text, "do": "check"})

    assert answer.status_code == 200
    assert "<dt>work_mcycles</dt>" in answer.text
    assert "<dt>resource_profile</dt>" not in answer.text


def test_several_files_get_an_answer_each(made: Scene) -> None:
    jane = made.browser("jane")
    text = "---\n".join([FILE.format("one", 64), FILE.format("one", 64), FILE.format("huge", 10**9)])
    files = [("file", (f"{name}.toml", FILE.format(name, 64).encode())) for name in ("two", "three")]

    pasted = jane.post(FORM, {"toml": text, "do": "submit"})
    data = {"csrf": jane.csrf(FORM), "do": "submit"}
    sent = jane.client.post(FORM, data=data, files=files, headers={"origin": URL, "sec-fetch-site": "same-origin"})

    assert pasted.status_code == 409
    assert pasted.text.count(">submitted</span>") == 1
    assert pasted.text.count(">refused</span>") == 2
    assert "pasted, part 3" in pasted.text
    assert sent.status_code == 200
    assert sent.text.count(">submitted</span>") == 2


def test_one_bad_file_keeps_all_back(made: Scene) -> None:
    jane = made.browser("jane")

    answer = jane.post(FORM, {"toml": f"{FILE.format('one', 64)}---\nname = 3\n", "do": "submit"})
    data = {"csrf": jane.csrf(FORM), "do": "submit"}
    guarded = {"origin": URL, "sec-fetch-site": "same-origin"}
    binary = jane.client.post(FORM, data=data, files=[("file", ("<b>.toml", b"\n\xff"))], headers=guarded)

    assert answer.status_code == 422
    assert "pasted, part 2:1: name: is 3" in answer.text
    assert "Nothing was submitted. The other 1" in answer.text
    assert binary.status_code == 422
    assert "&lt;b&gt;.toml:2: not UTF-8" in binary.text
    assert made.controller_client.asked == []


def test_owners_and_users_submit_to_their_environments_alone(made: Scene) -> None:
    acme, bob, mine = made.browser("acme"), made.browser("bob"), GOOD | {"name": "render-1"}

    form = bob.get(FORM).text
    without = bob.post(FORM, mine)
    theirs = bob.post(FORM, mine | {"environment": "theirs"})
    done = bob.post(FORM, mine | {"environment": "batch"})
    owners = acme.post(FORM, GOOD | {"name": "render-2", "environment": "batch"})

    assert "<option>batch</option>" in form
    assert "theirs" not in form
    assert [each.status_code for each in (without, theirs, done, owners)] == [403, 404, 303, 303]
    assert "name one" in without.text
    assert made.controller_client.asked[-2][0] == "user.bob"
    assert bob.get("/workloads/submit-web").status_code == 404


def test_a_web_application_is_submitted_by_form(made: Scene) -> None:
    jane = made.browser("jane")
    values = {"name": "shop", "memory_mib": "256", "max_mhz": "1000", "flows[0].name": "all", "flows[0].mean_s": "1"}

    bad = jane.post("/workloads/submit-web", values | {"flows[0].mean_s": ""})
    done = jane.post("/workloads/submit-web", values)

    assert bad.status_code == 422
    assert "exactly one goal" in bad.text
    assert (done.status_code, done.headers["location"]) == (303, "/workloads/web/shop")


def test_what_is_typed_stays_text(made: Scene) -> None:
    evil = '"><script>alert(1)</script>'

    answer = made.browser("jane").post(FORM, dict.fromkeys(GOOD, evil) | {"why": evil, "template": evil})

    assert answer.status_code == 422
    assert "<script>alert" not in answer.text
