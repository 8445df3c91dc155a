"""One encoder on Ray that several workers use at the same time, each once, and then once more.

python encoder_run.py STORE SECONDS CALLS     prints one JSON object: what each call returned or raised

CALLS is JSON: [count, value] encodes pictures, text matches a question. SECONDS: the limit of a call.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import ray

from framenest.corpus.batch_job import BatchJob
from framenest.corpus.ray_run import Encoder, RemoteScorer
from framenest.errors import FramenestError
from framenest.frames import FrameBatch

GREY = 120.5  # every other line is 120 and 121


def batch(count, value):
    pixels = np.full((count, 8, 8, 3), value, np.uint8)
    if value == GREY:
        pixels[:, ::2], pixels[:, 1::2] = 120, 121
    return FrameBatch(np.arange(10, 10 + count), np.zeros(count), (pixels,))


def main(store, seconds, calls):
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    actor = ray.remote(Encoder).options(max_restarts=-1).remote(BatchJob(scorer="fragile", cache=store))
    traits = ray.get(actor.traits.remote())

    def answer(call):
        scorer = RemoteScorer(traits, [actor], seconds)
        try:
            if isinstance(call, str):
                return {"result": scorer.match({"mean": np.array([51.0])}, call).tolist()}
            return {"result": scorer.encode(batch(*call))["mean"].tolist()}
        except FramenestError as error:
            return {"error": str(error), "class": type(error).__name__, "kind": getattr(error, "kind", None)}

    with ThreadPoolExecutor(len(calls)) as workers:
        answers = [*workers.map(answer, calls)]
    answers.append(answer([1, 40]))
    ray.shutdown()  # before it, Ray prints there as well
    sys.stdout.write("RESULT" + json.dumps(answers))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), json.loads(sys.argv[3]))
