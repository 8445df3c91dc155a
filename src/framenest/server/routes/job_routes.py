"""/jobs: what is being done in the background."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Query

from framenest.server.api_models import JobOut
from framenest.server.routes import Here, problems, told

router = APIRouter(tags=["jobs"])
Id = Annotated[str, Path(max_length=64, description="Id of a job.")]


@router.get("/jobs")
def jobs(
    here: Here,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    active: Annotated[bool, Query(description="Only what waits or runs.")] = False,
) -> list[JobOut]:
    """The latest jobs, newest first."""
    found = here.jobs.waiting_or_running()[::-1][:limit] if active else here.jobs.recent(limit)
    return [told(here, job) for job in found]


@router.get("/jobs/{job}", responses=problems(404))
async def job(
    here: Here,
    job: Id,
    wait: Annotated[
        float, Query(ge=0, le=60, description="Answer when it is over, or after so many seconds.")
    ] = 0,
) -> JobOut:
    """Progress of a job."""
    found = here.jobs.get(job)
    if found.active and wait:
        await asyncio.wait([asyncio.wrap_future(found.over)], timeout=wait)
    return told(here, found)


@router.delete("/jobs/{job}", responses=problems(404, 409))
def cancel(here: Here, job: Id) -> JobOut:
    """Cancel a job, for everyone who waits for it. It is over at once; its process stops within seconds."""
    return told(here, here.jobs.cancel(job))
