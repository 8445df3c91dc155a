"""The vLLM plug-in: the loader by itself; with the real vLLM, how it is found and asked (make test-vllm)."""

import asyncio
import base64
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import framenest as fn
from framenest import vllm_loader
from framenest.cache.directory import DirectoryStore
from framenest.vllm_loader import QuestionLoader
from media import growing_ticks, number_in, numbered_video

QUESTION = "What is last?"


@pytest.fixture(autouse=True)
def scorer(tmp_path, monkeypatch):
    """Later frames are more relevant, as $FRAMENEST_SCORER says."""
    file = tmp_path / "scores.json"
    file.write_text(json.dumps({str(i): i / 300 for i in range(300)}))
    monkeypatch.setenv("FRAMENEST_SCORER", f"table:{file}")
    vllm_loader._session.cache_clear()
    yield f"table:{file}"
    vllm_loader._session.cache_clear()


def numbers(frames):
    return [number_in(picture) for picture in frames]


class TestTheLoader:
    def test_frames_and_metadata(self, clip, scorer):
        frames, metadata = QuestionLoader.load_bytes(clip.read_bytes(), 8, question=QUESTION, pairing="pairs")
        expected = fn.rank(clip, QUESTION, 8, scorer=scorer).frames.tolist()
        assert (frames.shape, frames.dtype) == ((8, 64, 96, 3), np.uint8)
        assert numbers(frames) == expected
        assert metadata == {
            "total_num_frames": 300, "fps": 25.0, "duration": 12.0, "frames_indices": expected,
            "video_backend": "framenest", "do_sample_frames": False,
        }  # fmt: skip

    def test_a_question_counts(self, clip):
        data = clip.read_bytes()
        asked, without = (QuestionLoader.load_bytes(data, 4, question=q)[1] for q in (QUESTION, None))
        assert asked["frames_indices"] != without["frames_indices"]

    def test_without_a_question_there_need_be_no_scorer(self, clip, monkeypatch):
        monkeypatch.setenv("FRAMENEST_SCORER", "table:none.csv")
        assert len(QuestionLoader.load_bytes(clip.read_bytes(), 4, pairing="pairs")[0]) == 4
        with pytest.raises(ValueError, match=r"^framenest: .*none\.csv"):
            QuestionLoader.load_bytes(clip.read_bytes(), 4, question=QUESTION)

    def test_questions_share_the_index_with_each_other_and_with_the_file(self, clip, scorer):
        for question in (QUESTION, "What is first?", None):
            QuestionLoader.load_bytes(clip.read_bytes(), 4, question=question)
        fn.rank(clip, "What is in the middle?", 4, scorer=scorer)
        made = [path for path in DirectoryStore().root.rglob("*") if path.is_file()]
        kinds = [path.relative_to(DirectoryStore().root).parts[0] for path in made]
        assert (kinds.count("timeline"), kinds.count("index")) == (1, 1)

    def test_frames_far_apart_are_sent_twice(self, tmp_path):
        video = numbered_video(tmp_path / "slow.mp4", 60, fps=1).read_bytes()
        frames, metadata = QuestionLoader.load_bytes(video, 3)
        once = QuestionLoader.load_bytes(video, 3, pairing="pairs")[1]["frames_indices"]
        assert metadata["frames_indices"] == [n for n in once for _ in range(2)]
        assert numbers(frames) == metadata["frames_indices"]

    def test_variable_frame_rate(self, tmp_path):
        """Times are frames_indices / fps; these are milliseconds."""
        ticks = growing_ticks(60)
        video = numbered_video(tmp_path / "vfr.mkv", 60, ticks=ticks).read_bytes()
        frames, metadata = QuestionLoader.load_bytes(video, 5, pairing="pairs")
        assert metadata["fps"] == 1000
        assert metadata["frames_indices"] == [ticks[n] for n in numbers(frames)]

    def test_more_frames_than_a_ranking_usually_has(self, clip):
        assert len(QuestionLoader.load_bytes(clip.read_bytes(), 260, pairing="pairs")[0]) == 260

    def test_what_vllm_adds_by_itself(self, clip):
        data = clip.read_bytes()
        assert len(QuestionLoader.load_bytes(data, 4, backend="torchcodec", device="cuda")[0])

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"num_frames": -1}, "a budget must be a whole number, 1 or more, not -1"),
            ({"num_frames": 8.0}, "a budget must be a whole number, 1 or more, not 8.0"),
            ({"fps": 2}, "media_io_kwargs.video has 'fps'; give num_frames, question, pairing"),
            ({"pairing": "images"}, "pairing = 'images' is not allowed"),
            ({"question": ""}, "the question is empty"),
            ({"question": 3}, "question"),
            ({"data": b"no video"}, "the video: not a video"),
            ({"data": b""}, "the video: not a video"),
            ({"data": b"#EXTM3U\nhttp://example.com/a.ts"}, "the video: a playlist"),
        ],
    )
    def test_mistakes_are_value_errors_of_one_line(self, clip, given, message):
        with pytest.raises(ValueError, match=message) as caught:
            QuestionLoader.load_bytes(**{"data": clip.read_bytes(), "num_frames": 4} | given)
        assert str(caught.value).startswith("framenest: ")
        assert "\n" not in str(caught.value)

    def test_threads(self, clip, tmp_path):
        """vLLM calls it from eight threads."""
        other = numbered_video(tmp_path / "other.mp4", 120)
        jobs = [(path.read_bytes(), k) for path in (clip, other) for k in (2, 5, 9)]

        def chosen(job):
            return QuestionLoader.load_bytes(*job, question=QUESTION)[1]["frames_indices"]

        one_by_one = [*map(chosen, jobs)]
        with ThreadPoolExecutor(8) as pool:
            assert [*pool.map(chosen, jobs)] == one_by_one

    def test_no_video_stays_in_memory(self, clip):
        QuestionLoader.load_bytes(clip.read_bytes(), 4, question=QUESTION)
        with pytest.raises(ValueError, match="budget"):
            QuestionLoader.load_bytes(clip.read_bytes(), 0, question=QUESTION)
        assert vllm_loader._session().held() == []

    def test_importing_it_costs_nothing(self):
        code = (
            "import sys, framenest.vllm_loader\nprint(sys.modules.keys() & {'numpy', 'av', 'PIL', 'torch'})"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "set()"


@pytest.mark.filterwarnings("ignore")
class TestInVllm:
    @pytest.fixture(autouse=True)
    def vllm(self):
        pytest.importorskip("vllm", reason="needs vLLM; run: make test-vllm")
        from vllm.plugins import load_general_plugins

        load_general_plugins()

    @pytest.fixture
    def fetch(self, clip):
        from vllm.multimodal.media import MediaConnector

        def fetch(server=None, request=None, url=f"file://{clip}", **more):
            from vllm.multimodal.media.connector import merge_media_io_kwargs

            asked = merge_media_io_kwargs({"video": server or {}}, {"video": request or {}})
            return MediaConnector(asked, allowed_local_media_path=str(clip.parent)).fetch_video(url, **more)

        return fetch

    def test_vllm_finds_it(self):
        from vllm.multimodal.video import VIDEO_LOADER_REGISTRY

        assert VIDEO_LOADER_REGISTRY.name2class["framenest"] is QuestionLoader
        vllm_loader.register()  # vLLM may load a plug-in twice
        assert VIDEO_LOADER_REGISTRY.name2class["framenest"] is QuestionLoader

    @pytest.mark.parametrize("processor", [None, "Qwen3VLVideoProcessor", "Glm4vVideoProcessor"])
    def test_server_names_it_and_request_asks(self, fetch, clip, scorer, processor):
        frames, metadata = fetch(
            {"video_backend": "framenest", "pairing": "pairs"},
            {"question": QUESTION, "num_frames": 8},
            video_processor=processor,
        )
        assert metadata["frames_indices"] == fn.rank(clip, QUESTION, 8, scorer=scorer).frames.tolist()
        assert numbers(frames) == metadata["frames_indices"]

    def test_data_url(self, fetch, clip):
        url = f"data:video/mp4;base64,{base64.b64encode(clip.read_bytes()).decode()}"
        asked = {"video_backend": "framenest", "question": QUESTION, "num_frames": 4}
        assert fetch(request=asked, url=url)[1] == fetch(request=asked)[1]

    def test_vllm_asks_for_32_frames(self, fetch):
        assert len(fetch({"video_backend": "framenest", "pairing": "pairs"})[0]) == 32

    @pytest.mark.parametrize(
        ("processor", "backend"), [("Qwen3VLVideoProcessor", "opencv"), (None, "framenest")]
    )
    def test_the_environment_counts_only_for_models_without_a_loader(
        self, fetch, monkeypatch, processor, backend
    ):
        monkeypatch.setenv("VLLM_VIDEO_LOADER_BACKEND", "framenest")
        assert fetch(video_processor=processor)[1]["video_backend"] == backend

    def test_the_processor_takes_the_metadata(self, fetch):
        """As Qwen3-VL's code in vLLM does: everything but do_sample_frames."""
        from transformers.video_utils import VideoMetadata

        metadata = fetch({"video_backend": "framenest", "pairing": "pairs", "num_frames": 4})[1]
        assert metadata.pop("do_sample_frames") is False
        known = VideoMetadata(**metadata)
        assert known.timestamps == [n / 25 for n in metadata["frames_indices"]]

    def test_two_questions_have_two_keys_in_vllms_cache(self, fetch):
        from vllm.multimodal.hasher import MultiModalHasher
        from vllm.multimodal.parse import VideoProcessorItems

        def key(question):
            fetched = fetch({"video_backend": "framenest", "num_frames": 4}, {"question": question})
            items = VideoProcessorItems([(fetched[0], fetched[1])], metadata=[fetched[1]])
            return MultiModalHasher.hash_kwargs("sha256", video=items.get_all_items_for_hash()[0])

        assert key(QUESTION) == key(QUESTION)
        assert key(QUESTION) != key(None)

    def test_many_at_once(self, clip):
        from vllm.multimodal.media import MediaConnector

        async def fetch_all():
            asked = {"video_backend": "framenest", "pairing": "pairs"}
            return await asyncio.gather(*(
                MediaConnector(
                    {"video": asked | {"num_frames": k, "question": QUESTION}},
                    allowed_local_media_path=str(clip.parent),
                ).fetch_video_async(f"file://{clip}")
                for k in range(1, 9)
            ))  # fmt: skip

        assert [len(set(found[1]["frames_indices"])) for found in asyncio.run(fetch_all())] == [*range(1, 9)]

    def test_a_mistake(self, fetch):
        with pytest.raises(ValueError, match=r"framenest: media_io_kwargs\.video has 'fps'"):
            fetch({"video_backend": "framenest"}, {"fps": 2})
