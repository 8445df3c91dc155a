"""/jobs: what is being done in the background."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated

from fastapi import APIRouter, Path, Query

from framenest.server.api_models import JobOut
from framenest.server.routes import Here, problems

router = APIRouter(tags=["jobs"])
Id = Annotated[str, Path(max_length=64, description="Id of a job.")]
POLL = 0.1  # seconds between looks at a job that is waited for


@router.get("/jobs")
def jobs(here: Here, limit: Annotated[int, Query(ge=1, le=1000)] = 50) -> list[JobOut]:
    """The latest jobs, newest first."""
    return [JobOut.model_validate(job) for job in here.jobs.recent(limit)]


@router.get("/jobs/{job}", responses=problems(404))
async def job(
    here: Here,
    job: Id,
    wait: Annotated[
        float, Query(ge=0, le=60, description="Answer when it is over, or after so many seconds.")
    ] = 0,
) -> JobOut:
    """Progress of a job."""
    until = time.monotonic() + wait
    found = here.jobs.get(job)
    while found.active and time.monotonic() < until:
        await asyncio.sleep(POLL)
        found = here.jobs.get(job)
    return JobOut.model_validate(found)


@router.delete("/jobs/{job}", responses=problems(404, 409))
def cancel(here: Here, job: Id) -> JobOut:
    """Cancel a job, for everyone who waits for it. One that runs stops within a few seconds."""
    return JobOut.model_validate(here.jobs.cancel(job))
