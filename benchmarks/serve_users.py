"""What one user of the service does; run many of them with locust. benchmarks/serve.py does that.

Asks about one of the indexed videos, waits for the ranking, takes 16 frames, then 16 more.
"""

from __future__ import annotations

import random
import time

from locust import FastHttpUser, between, task

THINGS = (
    *("cat", "dog", "person", "car", "cup", "laptop", "rocket", "flower", "clock", "book", "bottle"),
    *("chair", "table", "bird", "boat", "bridge", "house", "tree", "phone", "train", "bicycle", "horse"),
    *("ball", "lamp", "window", "door", "hat", "bag", "plate", "knife"),
)
ASKED = (
    "Is the {} left of the {}?",
    "Does a {} appear before the {}?",
    "What happens between the {} and the {}?",
    "Which is larger, the {} or the {}?",
)


class Viewer(FastHttpUser):
    wait_time = between(1, 3)
    network_timeout = connection_timeout = 120.0

    def on_start(self) -> None:
        self.videos = [video["id"] for video in self.client.get("/videos").json()]

    @task
    def ask(self) -> None:
        question = random.choice(ASKED).format(*random.sample(THINGS, 2))
        body = {"video": random.choice(self.videos), "question": question}
        began = time.perf_counter()
        while True:
            with self.client.post("/rankings", json=body, catch_response=True, name="ask") as answer:
                if answer.status_code != 429:
                    break
                answer.success()  # being told to come back later is no failure; it is counted below
            self.tell("told to come back", 0.0)
            time.sleep(float(answer.headers["Retry-After"]))
        asked = answer.json()
        job = asked["job"]
        while job is not None and job["state"] in ("queued", "running"):
            job = self.client.get(f"/jobs/{job['id']}?wait=30", name="wait").json()
        name = "ranking there already" if asked["job"] is None else "question to ranking"
        self.tell(name, time.perf_counter() - began)
        ranking = asked["ranking"]
        first = self.client.get(f"/rankings/{ranking}/prefix?k=16", name="prefix").json()
        more = self.client.get(f"/rankings/{ranking}/prefix?k=32&after=16", name="16 more").json()
        if len(first["frames"]) != 16 or len(more["frames"]) != 16:
            raise ValueError("a prefix has the wrong length")

    def tell(self, name: str, seconds: float) -> None:
        self.environment.events.request.fire(
            request_type="USER", name=name, response_time=1000 * seconds, response_length=0, exception=None,
            context={},
        )  # fmt: skip
