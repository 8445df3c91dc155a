"""The plug-in for lmms-eval against fakes of the two libraries; test_lmms_eval_run.py has the real ones."""

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import entry_points
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from framenest.cache.directory import DirectoryStore
from framenest.errors import ConfigError, MissingExtra
from framenest.evaluation.lmms_eval import hook, tasks
from framenest.evaluation.lmms_eval.hook import VideoManifest
from framenest.evaluation.lmms_eval.tasks import TASKS, TaskSettings, task_name, task_yaml, write_tasks
from framenest.evaluation.selection_cache import SelectionCache
from framenest.lmm.prompt import DIRECTLY
from media import number_in, numbered_video

ROW = {
    "videoID": "clip", "question_id": "1-1", "question": "What is last?", "duration": "short",
    "options": ["A. One", "B. Two", "C. Three", "D. Four"], "answer": "B",
}  # fmt: skip


@pytest.fixture(autouse=True)
def fresh():
    hook._selections.cache_clear()


@pytest.fixture
def scores(tmp_path):
    file = tmp_path / "scores.json"
    file.write_text(json.dumps({str(i): i / 300 for i in range(300)}))
    return f"table:{file}"


def written(*manifest, budgets=(8,), **settings):
    """The path of a manifest whose frames are selected."""
    made = VideoManifest(*manifest, **settings)
    SelectionCache(made.scorer).select(made.video, made.text, made.selector, budgets)
    return str(made.write())


@pytest.fixture
def fake_vision_process(monkeypatch):
    """qwen_vl_utils.vision_process as far as the hook touches it, its fallback included."""
    fake = ModuleType("qwen_vl_utils.vision_process")
    fake.asked = []

    def native(element):
        fake.asked.append(element)
        if "broken" in element["video"]:
            raise ValueError("cannot decode")
        return "native frames"

    def torchvision(element):
        raise AttributeError("module 'torchvision.io' has no attribute 'read_video'")

    fake.VIDEO_READER_BACKENDS = {"decord": native, "torchvision": torchvision}

    def fetch_video(element):
        try:
            return fake.VIDEO_READER_BACKENDS["decord"](element)
        except Exception:
            return fake.VIDEO_READER_BACKENDS["torchvision"](element)

    fake.fetch_video = fetch_video
    package = ModuleType("qwen_vl_utils")
    package.vision_process = fake
    monkeypatch.setitem(sys.modules, "qwen_vl_utils", package)
    monkeypatch.setitem(sys.modules, "qwen_vl_utils.vision_process", fake)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(from_numpy=np.asarray))
    return fake


def test_lmms_eval_finds_the_hook():
    found = {point.name: point.value for point in entry_points(group="lmms_eval.models")}
    assert found["framenest"] == "framenest.evaluation.lmms_eval.hook:register"


def test_without_qwen_vl_utils_nothing_happens(monkeypatch):
    monkeypatch.setitem(sys.modules, "qwen_vl_utils", None)
    assert hook.register() == []
    assert not hook.hook_readers()


def test_every_reader_is_hooked_once(fake_vision_process):
    assert hook.register() == []
    hooked = dict(fake_vision_process.VIDEO_READER_BACKENDS)
    hook.register()
    assert hooked == fake_vision_process.VIDEO_READER_BACKENDS
    assert list(hooked) == ["decord", "torchvision"]


def test_ordinary_videos_pass_untouched(fake_vision_process):
    hook.register()
    element = {"type": "video", "video": "cat.mp4", "nframes": 8}
    assert fake_vision_process.fetch_video(element) == "native frames"
    assert fake_vision_process.asked[0] is element
    with pytest.raises(AttributeError, match="read_video"):  # its own errors stay its own
        fake_vision_process.fetch_video({"video": "broken.mp4", "nframes": 8})


def test_a_manifest_becomes_frames_at_their_true_times(fake_vision_process, clip, scores):
    hook.register()
    path = written(str(clip), "What is last?", "mec", scores)
    frames, metadata, rate = fake_vision_process.fetch_video({"video": path, "nframes": 8})
    assert frames.shape == (8, 3, 64, 96)
    assert frames.dtype == np.uint8
    numbers = [number_in(frame.transpose(1, 2, 0)) for frame in frames]
    assert numbers == sorted(numbers)
    seconds = np.array(metadata["frames_indices"]) / metadata["fps"]
    assert seconds == pytest.approx(np.array(numbers) / 25)
    assert set(metadata) == {"fps", "frames_indices", "total_num_frames", "duration", "video_backend"}
    assert rate == pytest.approx(8 / 12)

    more, _, _ = fake_vision_process.fetch_video({"video": path, "max_frames": 16, "total_pixels": 10**6})
    assert set(numbers) < {number_in(frame.transpose(1, 2, 0)) for frame in more}


def test_a_kept_ranking_serves_the_video_where_it_is_now(fake_vision_process, tmp_path, scores):
    hook.register()
    numbered_video(tmp_path / "old.mp4", 60)
    first = written(str(tmp_path / "old.mp4"), "What?", "mec", scores)
    fake_vision_process.fetch_video({"video": first, "nframes": 4})
    moved = (tmp_path / "old.mp4").rename(tmp_path / "new.mp4")
    frames, _, _ = fake_vision_process.fetch_video(
        {"video": str(VideoManifest(str(moved), "What?", "mec", scores).write()), "nframes": 8}
    )
    assert len(frames) == 8


def test_variable_rate_and_a_lone_frame(fake_vision_process, tmp_path, scores):
    ticks = np.cumsum([0, *(20 + 7 * i for i in range(59))]).tolist()
    video = numbered_video(tmp_path / "v.mkv", 60, ticks=ticks)
    hook.register()
    path = written(str(video), "What is last?", "mec", scores)
    for budget, count in ((1, 2), (7, 7)):
        frames, metadata, _ = fake_vision_process.fetch_video({"video": path, "nframes": budget})
        assert len(frames) == count
        numbers = [number_in(frame.transpose(1, 2, 0)) for frame in frames]
        true = np.array(ticks)[numbers] / 1000
        assert np.array(metadata["frames_indices"]) / metadata["fps"] == pytest.approx(true, abs=0.002)


def test_each_frame_twice_keeps_its_own_time(fake_vision_process, clip, scores):
    hook.register()
    path = written(str(clip), "What?", "mec", scores, pairing="duplicate")
    frames, metadata, _ = fake_vision_process.fetch_video({"video": path, "nframes": 4})
    assert len(frames) == len(metadata["frames_indices"]) == 8
    assert metadata["frames_indices"][::2] == metadata["frames_indices"][1::2]
    assert (frames[::2] == frames[1::2]).all()


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"scorer": "none-such"}, "there is no scorer"),
        ({"video": "gone.mp4"}, "gone.mp4"),
        ({"selector": "mec:horizon=4"}, "no selection by mec:horizon=4 .* run: COMMAND --budgets 8"),
    ],
)
def test_a_failed_selection_is_an_explicit_error(fake_vision_process, clip, scores, broken, said):
    hook.register()
    given = {"video": str(clip), "text": "What?", "selector": "mec", "scorer": scores, "prepare": "COMMAND"}
    given |= broken
    path = str(VideoManifest(**given).write())
    with pytest.raises(SystemExit, match=said):  # through `except Exception`, not into torchvision
        fake_vision_process.fetch_video({"video": path, "nframes": 8})


def test_a_model_that_names_no_budget(fake_vision_process, clip, scores):
    hook.register()
    path = str(VideoManifest(str(clip), "What?", "mec", scores).write())
    with pytest.raises(SystemExit, match="set the model's frame argument: max_num_frames=K"):
        fake_vision_process.fetch_video({"video": path, "fps": 2.0})


def task_kwargs(monkeypatch, clip, **settings):
    """What lmms-eval hands to doc_to_messages, with a fake task that knows where the video is."""
    fake = ModuleType("fake_task_utils")
    fake.doc_to_visual = lambda doc: [str(clip.with_stem(doc["videoID"]))]
    monkeypatch.setitem(sys.modules, "fake_task_utils", fake)
    return {
        "video_of": "fake_task_utils.doc_to_visual",
        "framenest": {"benchmark": "videomme", "scorer": "tags"} | settings,
    }


def test_messages_are_a_manifest_and_the_papers_prompt(fake_vision_process, monkeypatch, clip, scores):
    hook.register()
    kwargs = task_kwargs(monkeypatch, clip, scorer=scores)
    (message,) = tasks.messages(ROW, kwargs)
    video, text = message["content"]
    assert message["role"] == "user"
    assert set(video) == {"type", "url"}  # lmms-eval drops every other key
    assert text == {"type": "text", "text": f"What is last?\nA. One\nB. Two\nC. Three\nD. Four\n{DIRECTLY}"}
    assert tasks.text(ROW, kwargs) == text["text"]
    made = VideoManifest.read(video["url"])
    assert (made.video, made.text, made.selector) == (str(clip), "What is last?", "mec")
    (again,) = tasks.messages(ROW, kwargs)
    assert again == message  # the same question is the same manifest
    (other,) = tasks.messages(ROW, task_kwargs(monkeypatch, clip, query="question+options"))
    assert (
        VideoManifest.read(other["content"][0]["url"]).text == "What is last? A. One B. Two C. Three D. Four"
    )
    lists = {"query": "question+options", "selector": "file:lists.json"}  # are of questions alone
    (other,) = tasks.messages(ROW, task_kwargs(monkeypatch, clip, **lists))
    assert VideoManifest.read(other["content"][0]["url"]).text == "What is last?"


def test_native_is_the_models_own_reading_with_the_same_prompt(monkeypatch, clip):
    (message,) = tasks.messages(ROW, task_kwargs(monkeypatch, clip, selector="native"))
    assert message["content"][0] == {"type": "video", "url": str(clip)}
    assert message["content"][1]["text"].endswith(DIRECTLY)


def test_frames_in_the_message_for_other_models(monkeypatch, clip, scores):
    kwargs = task_kwargs(monkeypatch, clip, scorer=scores, frames_as="images", frames=3)
    SelectionCache(scores).select(str(clip), "What is last?", "mec", [3])
    (message,) = tasks.messages(ROW, kwargs)
    kinds = [part["type"] for part in message["content"]]
    assert kinds == ["text", "image"] * 3 + ["text"]
    times = [float(part["text"][1:].split()[0]) for part in message["content"][:-1:2]]
    numbers = [number_in(np.asarray(part["url"])) for part in message["content"][1::2]]
    assert times == pytest.approx(np.array(numbers) / 25, abs=0.051)
    kwargs = task_kwargs(monkeypatch, clip, scorer=scores, frames_as="frames", frames=3)
    (message,) = tasks.messages(ROW, kwargs)
    assert [number_in(np.asarray(picture)) for picture in message["content"][0]["url"]] == numbers


def test_without_the_reader_a_manifest_is_not_sent(monkeypatch, clip, scores):
    monkeypatch.setitem(sys.modules, "qwen_vl_utils", None)
    with pytest.raises(SystemExit, match=r"run.* install .*\[lmms-eval\]"):
        tasks.messages(ROW, task_kwargs(monkeypatch, clip, scorer=scores))


@pytest.mark.parametrize("row", [ROW | {"videoID": None}, ROW | {"options": None}, {}])
def test_whatever_goes_wrong_ends_the_run(monkeypatch, clip, row):
    with pytest.raises(SystemExit, match="framenest: unexpected"):  # lmms-eval goes on after an Exception
        tasks.messages(row, task_kwargs(monkeypatch, clip, selector="native"))


def test_threads_select_one_at_a_time(monkeypatch, clip):
    inside, most = [], []

    class Selections:
        def prefix(self, *_):
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.01)
            inside.pop()

    monkeypatch.setattr(hook, "_selections", lambda _: Selections())
    with ThreadPoolExecutor(4) as pool:
        manifest = VideoManifest(str(clip), "a", "mec", "tags")
        list(pool.map(lambda k: hook.selected_frames(manifest, k), range(1, 9)))
    assert most == [1] * 8


def test_models_without_messages_are_refused():
    with pytest.raises(SystemExit, match="chat model"):
        tasks.no_visual(ROW)


def test_the_environment_sets_nothing(monkeypatch):
    """What lmms-eval's results do not say must not change them."""
    for name, value in {"SELECTOR": "bolt", "SCORER": "tags", "QUERY": "question+options"}.items():
        monkeypatch.setenv(f"FRAMENEST_{name}", value)
    plain = TaskSettings.of_task({"framenest": {"benchmark": "mlvu", "scorer": "blip2"}})
    assert (plain.selector, plain.scorer, plain.query) == ("mec", "blip2", "question")


@pytest.mark.parametrize("scorer", [{}, {"scorer": None}, {"scorer": "auto"}])
def test_a_scorer_is_named(scorer):
    TaskSettings.of_task({"framenest": {"benchmark": "mlvu", "selector": "uniform"} | scorer})
    with pytest.raises(ConfigError, match="selector mec needs a scorer by name, such as blip2, and not auto"):
        TaskSettings.of_task({"framenest": {"benchmark": "mlvu"} | scorer})


@pytest.mark.parametrize(
    "wrong",
    [{"benchmark": "x"}, {"selecter": "mec"}, {"query": "options"}, {"selector": "best"},
     {"frames_as": "images"}, {"pairing": "images"}, {"version": "0.0.1"}],
)  # fmt: skip
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ConfigError):
        TaskSettings.of_task({"framenest": {"benchmark": "videomme", "scorer": "tags"} | wrong})


@pytest.fixture
def fake_lmms_eval(tmp_path, monkeypatch):
    """An installed lmms_eval with nothing in it; its version is asked of the installed packages."""
    (tmp_path / "site" / "lmms_eval").mkdir(parents=True)
    (tmp_path / "site" / "lmms_eval" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setattr("framenest.evaluation.lmms_eval.tasks.version", lambda _: "0.7.3")
    return tmp_path / "site" / "lmms_eval"


def test_tasks_for_every_benchmark_and_selector(fake_lmms_eval, tmp_path):
    yaml = pytest.importorskip("yaml")
    store = DirectoryStore(tmp_path / "cache")
    folder = write_tasks(store, scorer="blip2", query="question+options")
    assert len(list(folder.iterdir())) == 8 * 5
    assert write_tasks(store, scorer="blip2", query="question+options") == folder
    assert write_tasks(store, scorer="blip2") != folder
    with pytest.raises(ConfigError, match="not auto"):
        write_tasks(store, scorer="auto")

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_constructor("!function", lambda loader, node: loader.construct_scalar(node))
    for task in TASKS:
        for selector in ("mec", "uniform", "aks", "wfs-sb", "native"):
            name = task_name(task, selector)
            made = yaml.load((folder / f"{name}.yaml").read_text(), Loader)
            assert made["task"] == name
            assert made["include"] == str(fake_lmms_eval / "tasks" / task.file)
            kwargs = made["lmms_eval_specific_kwargs"]["default"]
            assert kwargs["video_of"].startswith("lmms_eval.tasks.")
            settings = TaskSettings.of_task(kwargs)
            assert (settings.benchmark, settings.selector) == (task.benchmark, selector)
            assert (settings.query, settings.pairing) == ("question+options", "pairs")
            assert settings.scorer == (None if selector in ("uniform", "native") else "blip2")
            for key in ("doc_to_messages", "doc_to_text", "doc_to_visual"):
                module, _, function = made[key].rpartition(".")
                assert module == tasks.__name__
                assert callable(getattr(tasks, function))


def test_the_videos_are_found_by_lmms_evals_own_functions(tmp_path):
    yamls = {
        task.name: task_yaml(task, TaskSettings(task.benchmark, scorer="blip2"), tmp_path) for task in TASKS
    }
    assert "video_of: lmms_eval.tasks.videomme.utils.videomme_doc_to_visual\n" in yamls["videomme_long"]
    assert (
        "video_of: lmms_eval.tasks.longvideobench.utils.longvideobench_doc_to_visual_v\n"
        in yamls["longvideobench_val"]
    )


def test_tasks_need_lmms_eval(monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"run.* install .*\[lmms-eval\]"):
        write_tasks(DirectoryStore(tmp_path), scorer="blip2")


@pytest.fixture
def response_cache(monkeypatch):
    """lmms-eval's cache as far as the hook touches it: it stores answers when the model has returned them."""

    class ResponseCache:
        def __init__(self):
            self.stored = []

        def execute(self, model, kind, requests):
            answers = getattr(model, kind)(requests)
            self.stored += answers
            return answers

    fake = ModuleType("lmms_eval.caching.response_cache")
    fake.ResponseCache = ResponseCache
    for name in ("lmms_eval", "lmms_eval.caching"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, fake.__name__, fake)
    monkeypatch.setattr(sys, "argv", ["lmms_eval", "--tasks", "framenest_videomme"])
    monkeypatch.setattr(hook, "ANSWERS_A_STEP", 2)
    monkeypatch.setenv("LMMS_CACHE_RUN_ID", "x")
    monkeypatch.delenv("LMMS_CACHE_RUN_ID")
    return ResponseCache


FAILURES = {
    "f": "[LMMS_EVAL_REQUEST_FAILED after 5 retries] x",
    "$": "[LMMS_EVAL_BUDGET_EXCEEDED]",
    "?": 'Error: can only concatenate str (not "NoneType") to str',
}


class FakeModel:
    """Answers in capitals; fails on some letters, says nothing to "_", and changes the settings of its
    requests, as async_openai does."""

    def __init__(self):
        self.calls = []

    def generate_until(self, requests):
        self.calls.append(len(requests))
        for one in requests:
            one.args[1]["temperature"] = 0
        names = [one.args[0] for one in requests]
        return [FAILURES.get(name, name.strip("_").upper()) for name in names]


def asked(names, task="framenest_videomme"):
    return [SimpleNamespace(task_name=task, args=(name, {"max_new_tokens": 16})) for name in names]


def test_answers_are_stored_in_steps_under_the_name_of_the_command(response_cache, monkeypatch, capsys):
    hook.store_answers_in_steps()
    run = os.environ["LMMS_CACHE_RUN_ID"]
    assert run.startswith("framenest-")
    model, requests = FakeModel(), asked("abcde")
    assert response_cache().execute(model, "generate_until", requests) == list("ABCDE")
    assert model.calls == [2, 2, 1]
    assert all(one.args[1] == {"max_new_tokens": 16} for one in requests)  # the key of the stored answer
    assert "framenest: 5 of 5 answers are new" in capsys.readouterr().err
    monkeypatch.delenv("LMMS_CACHE_RUN_ID")
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--limit", "1"])
    hook.store_answers_in_steps()
    assert os.environ["LMMS_CACHE_RUN_ID"] != run


@pytest.mark.parametrize("kind", list(FAILURES))
def test_a_failed_request_ends_the_run_and_its_step_is_not_stored(response_cache, kind):
    hook.store_answers_in_steps()
    answers = response_cache()
    with pytest.raises(SystemExit) as ended:
        answers.execute(FakeModel(), "generate_until", asked(f"ab{kind}c"))
    assert str(ended.value) == f"framenest: 1 of 2 requests failed: {FAILURES[kind]}"
    assert answers.stored == ["A", "B"]


def test_a_whole_step_of_empty_answers_ends_the_run(response_cache):
    """internvl_hf answers "" to whatever it cannot compute, out of memory for example."""
    hook.store_answers_in_steps()
    answers = response_cache()
    some = ["A", "", "B", "C", ""]  # of a last step that is no whole one, too
    assert answers.execute(FakeModel(), "generate_until", asked("a_bc_")) == some
    with pytest.raises(SystemExit, match="framenest: 2 empty answers in a row"):
        answers.execute(FakeModel(), "generate_until", asked("ab__c"))
    assert answers.stored == [*some, "A", "B"]


def test_other_tasks_are_left_alone(response_cache, monkeypatch):
    execute = response_cache.execute
    hook.store_answers_in_steps()
    model = FakeModel()
    assert response_cache().execute(model, "generate_until", asked("abf", "mmmu"))[:2] == ["A", "B"]
    assert model.calls == [3]
    response_cache.execute = execute
    monkeypatch.delenv("LMMS_CACHE_RUN_ID")
    monkeypatch.setattr(sys, "argv", ["lmms_eval", "--tasks", "mmmu"])
    hook.store_answers_in_steps()
    assert response_cache.execute is execute
    assert "LMMS_CACHE_RUN_ID" not in os.environ
