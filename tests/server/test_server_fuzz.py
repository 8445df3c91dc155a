"""The API asked with what its OpenAPI document allows, and with what it does not: no 5xx, no surprises."""

from contextlib import suppress

import pytest

schemathesis = pytest.importorskip("schemathesis", reason="needs the extra `test-server`")

from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis.errors import Unsatisfiable  # noqa: E402
from schemathesis import GenerationMode  # noqa: E402

SETTINGS = settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)


@pytest.fixture(scope="module")
def known(server):
    """Ids of things that are there, so that not every request ends with 404."""
    video = server.indexed("clip.mp4")
    ranking = server.ask(video)
    job = server.http.get("/jobs").json()[0]["id"]
    search = server.http.post("/searches", json={"query": "a kiln"}).json()["id"]
    return {"video": video, "ranking": ranking, "job": job, "search": search, "frame": 7}


@pytest.fixture(scope="module")
def operations(server, known):
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    found = [result.ok() for result in schema.get_all_operations()]
    assert len(found) > 20
    return found


def fuzz(operation, mode, ask):
    """Ask many times; where an operation takes nothing, nothing wrong can be sent."""
    with suppress(Unsatisfiable):
        SETTINGS(given(operation.as_strategy(generation_mode=mode))(ask))()


# A budget may be more than the ranking has, an address not allowed: what fits may still be refused.
REFUSED = [schemathesis.checks.positive_data_acceptance]
# With real ids put in, what was made to be wrong may be right.
MENDED = [*REFUSED, schemathesis.checks.negative_data_rejection]


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_whatever_is_asked(operations, mode):
    def ask(case):
        response = case.call(timeout=120)
        assert response.status_code < 500
        too_large = response.status_code == 413  # a rejection, which schemathesis does not count as one
        case.validate_response(response, excluded_checks=MENDED if too_large else REFUSED)

    for operation in operations:
        fuzz(operation, mode, ask)


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_whatever_is_asked_of_things_that_are_there(operations, known, mode):
    def ask(case):
        for name in case.path_parameters or {}:
            case.path_parameters[name] = known[name]
        if isinstance(case.body, dict) and "video" in case.body:
            case.body["video"] = known["video"]
        case.call_and_validate(excluded_checks=MENDED, timeout=120)

    for operation in operations:
        if operation.label != "DELETE /videos/{video}":
            fuzz(operation, mode, ask)


def test_the_server_is_still_well(server, known):
    assert server.http.get("/health").json()["status"] == "ok"
    assert server.http.get(f"/rankings/{known['ranking']}/prefix?k=8").status_code == 200
    assert "Traceback" not in server.log
