"""Ask any OpenAI-compatible server about a video, with the official client.

    pip install '.[tags,ask]' && framenest models fetch tags
    python examples/openai_chat.py kiln.mp4 "What happens after firing?" --base-url http://localhost:8000/v1

The key, if the server wants one, is read from OPENAI_API_KEY. `framenest ask` does this and more.
"""

from __future__ import annotations

import argparse
import os

from openai import OpenAI

import framenest as fn


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("video")
    parser.add_argument("question")
    parser.add_argument("-k", type=int, default=16, help="how many frames")
    parser.add_argument("--base-url", default="http://localhost:8000/v1")
    parser.add_argument("--model", help="by default the first that the server lists")
    parser.add_argument("--scorer", default="auto")
    given = parser.parse_args(arguments)

    ranking = fn.MEC(scorer=given.scorer, preset="residual").rank(given.video, given.question)
    request = fn.lmm.messages(
        ranking.prefix(given.k), given.question, limits=fn.lmm.ImageLimits(max_side=768)
    )
    print(f"{given.k} frames, about {request.tokens.total:,} tokens: {' '.join(request.markers)}")

    with OpenAI(base_url=given.base_url, api_key=os.environ.get("OPENAI_API_KEY", "none")) as client:
        model = given.model or client.models.list().data[0].id
        reply = client.chat.completions.create(model=model, max_tokens=256, **request.create)
    print(reply.choices[0].message.content)


if __name__ == "__main__":
    main()
