"""A run on a real Ray cluster of two nodes on this machine, the second of which may be killed in the middle.

python ray_run.py SETTINGS.json     prints one JSON object: outcomes, and what began and ended where
"""

import json
import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from odd_jobs import OddJob

from framenest import IndexConfig, MECConfig
from framenest.corpus.manifest import find_videos, index_groups, ranking_groups
from framenest.corpus.ray_run import run_on_ray
from framenest.processes import ProcessLimits
from framenest.rank_request import RankRequest

SMALL = RankRequest(video="", config=MECConfig(IndexConfig(base_probes=12, extra_probes=0)))


@dataclass(frozen=True)
class WatchedJob(OddJob):
    """Writes down on which node each video begins and ends, and takes a second longer over it.

    On a doomed node a video never ends, and no other ends before one has begun there: the node can only be
    killed in the middle of a video.
    """

    log: str = ""
    doomed: str = ""

    def open(self, scorer=None):
        work = super().open(scorer)

        def watched(group, **told):
            self.write("begin", group)
            time.sleep(3600 if self.doomed == this_node() else 1)
            self.wait_for_the_doomed()
            found = work(group, **told)
            self.write("end", group)
            return found

        return watched

    def wait_for_the_doomed(self):
        while self.doomed and not any(row["node"] == self.doomed for row in self.rows()):
            time.sleep(0.1)

    def rows(self):
        file = Path(self.log)
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def write(self, what, group):
        row = {"what": what, "node": this_node(), "video": Path(group[0].video).name}
        line = json.dumps(row) + "\n"
        handle = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, line.encode())
        os.close(handle)


def this_node():
    import ray

    return ray.get_runtime_context().get_node_id()


def main(settings):
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": settings["head"]})
    second = cluster.add_node(wait=False, num_cpus=1)
    cluster.wait_for_nodes(timeout=240)  # a busy machine starts it slowly
    job = WatchedJob(
        settings.get("scorer"),
        cache=settings.get("url") or settings["store"],
        library=settings.get("library"),
        log=settings["log"],
        doomed=second.node_id if settings.get("kill") == "in a video" else "",
    )
    if "manifest" in settings:
        groups = ranking_groups(Path(settings["manifest"]), Path(settings["out"]), SMALL)
    else:
        groups = index_groups(find_videos([settings["videos"], *settings.get("odd", [])]), SMALL)

    def kill():
        job.wait_for_the_doomed()
        cluster.remove_node(second, allow_graceful=False)

    if settings.get("kill") == "in a video":
        threading.Thread(target=kill, daemon=True).start()
    found = []
    run = run_on_ray(
        job,
        groups,
        ProcessLimits(settings.get("seconds")),
        address=cluster.address,
        encoders=settings.get("encoders"),
    )
    for outcomes in run:
        if settings.get("kill") == "after one" and not found:
            kill()
        found += outcomes
    cluster.shutdown()
    rows = [[Path(o.item.video).name, o.item.request.question, o.status, o.error, o.text] for o in found]
    sys.stdout.write("RESULT" + json.dumps({"outcomes": rows, "log": job.rows(), "second": second.node_id}))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
