"""The live page in a real browser."""

import json
import re
import shutil
import time

import pytest

from browser import DESKTOP, PHONE, Watched, chromium
from colour_scorer import coloured_video, install_colour_scorer
from framenest import MECConfig, Ranking
from framenest.lmm import STYLES
from framenest.lmm.prompt import CITE
from media import encode_video, numbered_picture
from processes import children, standing_still
from served import Server

TOKEN = "a-token-of-the-tests-0123456789"
HOSTILE = '<img src=x onerror="window.ran=1"><b>Is it "safe"?</b>'


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    """A folder with three videos that browsers play, and two that take a while to index; two to upload."""
    folder = tmp_path_factory.mktemp("films")
    pictures = [numbered_picture(i, 320, 192) for i in range(300)]
    (folder / "folder").mkdir()
    encode_video(folder / "folder" / "film.mp4", pictures, options={"g": "50"})
    encode_video(folder / "folder" / "long.mp4", pictures * 16, options={"g": "3000", "preset": "ultrafast"})
    encode_video(folder / "folder" / "slow.mp4", pictures * 15, options={"g": "3000", "preset": "ultrafast"})
    encode_video(folder / "folder" / "second.mp4", pictures[100:200])
    encode_video(folder / "folder" / "later.mp4", pictures[200:250])
    encode_video(folder / "mine.mp4", pictures[:150])
    encode_video(folder / "unwanted.mp4", pictures[:50])
    return folder


@pytest.fixture(scope="module")
def live(tmp_path_factory, films, scores):
    one = Server(tmp_path_factory.mktemp("live"), "--scorer", scores, videos=films / "folder").start()
    yield one
    one.stop()


@pytest.fixture
def visit(browser):
    """Open a page; at the end it must have said nothing and asked only its own server."""
    opened, servers = [], set()

    def go(server, size=DESKTOP, scheme="light", path="/"):
        server.check_alive()
        servers.add(server)
        watched = Watched(browser, size, scheme)
        watched.home = server.url
        watched.excused = []
        opened.append(watched)
        watched.page.goto(server.url + path)
        watched.page.locator("#ask, #sign-in").locator("visible=true").first.wait_for()
        return watched

    yield go
    for server in servers:
        server.check_alive()
    for watched in opened:
        assert [text for text in watched.said if not any(e in text for e in watched.excused)] == []
        assert [url for url in watched.asked if not url.startswith((watched.home, "data:"))] == []
        watched.context.close()


def ask(page, question, video="film.mp4"):
    option = page.locator("#video option").filter(has_text=video)
    page.locator("#video").select_option(value=option.first.get_attribute("value"))
    page.locator("#question").fill(question)
    page.get_by_role("button", name="Ask", exact=True).click()
    page.locator("#report h1").filter(has_text=question).wait_for(timeout=60_000)


def shown(page):
    return page.locator(".tiles button").evaluate_all("all => all.map(tile => Number(tile.dataset.frame))")


def saved(server, page):
    """The ranking that the page shows, as the server gives its file."""
    return Ranking.from_json(server.http.get(f"/rankings/{identity(page)}/file").json())


def identity(page):
    """The id of the ranking that the address of the page names."""
    return page.url.rpartition("#")[2].partition("&")[0]


def row(page, video):
    """A video in the list of videos, which is opened for it."""
    if not page.locator("#videos").evaluate("list => list.open"):
        page.locator("#videos > summary").click()
    return page.locator("#videos > ul > li").filter(has=page.locator(".name", has_text=video))


def until(page, expression):
    """Wait for a condition. (Playwright's own wait_for_function needs eval, which the page forbids.)"""
    end = time.monotonic() + 60
    while not page.evaluate(expression):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(50)


def loaded(page):
    """Wait until every picture in sight is there."""
    until(
        page,
        "[...document.images].filter(i => i.checkVisibility() && i.getBoundingClientRect().top < innerHeight)"
        ".every(i => i.complete && i.naturalWidth > 0)",
    )


def test_ask_watch_and_move_the_budget(visit, live):
    watched = visit(live)
    page = watched.page
    ask(page, "Where is it?")
    ranking = saved(live, page)
    smaller = set()
    for budget in (8, 16, 32, 64):
        page.get_by_role("button", name=str(budget), exact=True).click()
        assert shown(page) == ranking.prefix(budget).frames.tolist()
        assert smaller < set(shown(page))
        smaller = set(shown(page))
    loaded(page)
    page.locator(".why > summary").click()
    page.locator(".tiles button").nth(3).hover()
    assert page.locator(".crosshair").is_visible()
    assert page.locator(".tick.pointed").count() == 1


def test_pictures_are_the_frames(visit, live):
    page = visit(live).page
    ask(page, "Where is it?")
    loaded(page)
    first = page.locator(".tiles img").first
    path = re.fullmatch(r"/videos/\w+/frames/(\d+)\?size=(\d+)", first.get_attribute("src"))
    assert int(path[1]) == shown(page)[0]
    size = min(int(path[2]), 192)
    assert first.evaluate("image => image.naturalHeight") == size


def test_progress_says_how_long_it_will_take(visit, live):
    """From the second report of a stage on: 10 of 100 frames, and 10 s later 20."""
    told = visit(live).page.evaluate(
        """async () => {
          const { progressOf } = await import("/assets/api.js");
          const job = { id: "x", state: "running", stage: "probes", done: 10, total: 100 };
          Date.now = () => 0;
          const texts = [progressOf(job).text];
          Date.now = () => 10000;
          texts.push(progressOf({ ...job, done: 20 }).text);
          return texts;
        }"""
    )
    assert told == ["scoring probes, 10 of 100", "scoring probes, 20 of 100, about 80 s left"]


def test_progress_is_shown_and_work_can_be_cancelled(visit, live):
    page = visit(live).page
    page.locator("#video").select_option(label="long.mp4")
    live.at_work()
    with standing_still(children(live.process.pid)):  # the work would be over too soon
        told = re.compile(r"scoring probes, \d+ of \d+")  # the queue may say so as well
        page.locator("#stage").filter(has_text=told).wait_for(timeout=60_000)
        page.locator("#cancel").click()  # and felt at once, though the process does not hear of it
        page.get_by_role("alert").filter(has_text="this was cancelled").wait_for(timeout=60_000)
        assert not page.locator("#work").is_visible()
        page.locator("#queue").wait_for(state="hidden")
        row(page, "long.mp4").locator(".state").filter(has_text="not indexed").wait_for()


def test_the_queue_says_what_runs_and_what_waits_for_it(visit, live):
    watched = visit(live)
    page = watched.page
    with page.expect_response(lambda answer: answer.request.method == "POST") as indexing:
        row(page, "slow.mp4").get_by_role("button", name="Index").click()
    live.at_work(indexing.value.json()["job"])
    with standing_still(children(live.process.pid)):
        page.locator("#video").select_option(index=option(page, "slow.mp4"))
        page.locator("#question").fill("And in the slow one?")
        page.locator("#choices summary").click()
        page.locator("#look-for").fill("a slow kiln")
        page.get_by_role("button", name="Ask", exact=True).click()
        page.locator("#stage").filter(
            has_text=re.compile(r"the video is indexed first: scoring probes, \d+ of \d+")
        ).wait_for(timeout=60_000)
        queued = page.locator("#queue li")
        queued.nth(1).wait_for()
        texts = queued.all_inner_texts()
        assert re.search(r"Index slow.mp4\s+scoring probes, \d+ of \d+", texts[0])
        assert "And in the slow one?" in texts[1]
        assert "waiting for the index" in texts[1]
        row(page, "slow.mp4").locator(".state").filter(has_text=re.compile(r"indexing \d+ %")).wait_for()
        watched.screenshot("live-queue")
        other = visit(live)  # someone else sees it as well, and may cancel it
        other.page.get_by_role("button", name="Cancel: And in the slow one?").click()
        other.page.locator("#queue li").nth(1).wait_for(state="detached")
        page.get_by_role("alert").filter(has_text="this was cancelled").wait_for(timeout=60_000)
        page.get_by_role("button", name="Cancel: Index slow.mp4").click()
        page.locator("#queue").wait_for(state="hidden")
    asked = row(page, "slow.mp4")
    asked.get_by_role("button", name="1 question").click()
    asked.locator(".questions").get_by_text("not made").wait_for()
    page.locator("#question, #look-for").evaluate_all("fields => fields.forEach(field => (field.value = ''))")
    asked.locator(".questions").get_by_role("button", name="And in the slow one?").click()
    assert page.locator("#question").input_value() == "And in the slow one?"
    assert page.locator("#look-for").input_value() == "a slow kiln"


def option(page, video):
    """The place of a video among those to choose from."""
    texts = page.locator("#video option").all_inner_texts()
    return next(place for place, text in enumerate(texts) if text.startswith(video))


def test_earlier_questions_are_links_to_their_rankings(visit, live):
    page = visit(live).page
    ask(page, "An earlier one?")
    first = shown(page)
    ask(page, "A later one?")
    film = row(page, "film.mp4")
    assert "ready" in film.inner_text()
    assert "0:12" in film.inner_text()
    film.get_by_role("button", name=re.compile(r"\d+ questions")).click()
    link = film.get_by_role("link", name="An earlier one?")
    link.click()
    page.locator("#report h1").filter(has_text="An earlier one?").wait_for()
    assert shown(page) == first


def test_a_deleted_video_is_gone_with_its_questions(visit, live, films):
    watched = visit(live)
    watched.excused = ["404", "422"]  # of pictures that are on their way when their video goes
    page = watched.page
    page.locator("#file").set_input_files(films / "unwanted.mp4")
    ask(page, "Who wants it?", "unwanted.mp4")
    unwanted = row(page, "unwanted.mp4")
    unwanted.get_by_role("button", name="Delete unwanted.mp4").click()
    assert "Delete unwanted.mp4 and its question? The uploaded file is deleted." in unwanted.inner_text()
    watched.screenshot("live-delete")
    unwanted.get_by_role("button", name="Keep").click()
    assert not unwanted.locator(".sure").is_visible()
    unwanted.get_by_role("button", name="Delete unwanted.mp4").click()
    ranking = identity(page)
    unwanted.get_by_role("button", name="Delete", exact=True).click()
    unwanted.wait_for(state="detached")
    assert page.locator("#report h1").count() == 0
    assert "#" not in page.url
    assert live.http.get(f"/rankings/{ranking}").status_code == 404
    assert not [file for file in (live.data / "uploads").iterdir() if "unwanted" in file.name]


def test_a_changed_file_is_offered_again(visit, live, films):
    file = films / "folder" / "changing.mp4"
    shutil.copy(films / "unwanted.mp4", file)
    try:
        live.indexed("changing.mp4")
        shutil.copy(films / "mine.mp4", file)
        page = visit(live).page
        both = row(page, "changing.mp4")
        assert both.locator(".state").all_inner_texts() == ["file changed or missing", "not indexed"]
        both.last.get_by_role("button", name="Index").click()
        both.locator(".state").filter(has_text="ready").wait_for(timeout=60_000)
        both.filter(has_text="missing").get_by_role("button", name="Delete changing.mp4").click()
        both.filter(has_text="missing").get_by_role("button", name="Delete", exact=True).click()
        both.filter(has_text="missing").wait_for(state="detached")
        assert both.count() == 1
    finally:
        file.unlink()


def test_work_that_nobody_saw_in_the_queue_is_shown_when_it_is_done(visit, live, films):
    """It begins and ends between two looks at the queue."""
    file = films / "folder" / "brief.mp4"
    shutil.copy(films / "unwanted.mp4", file)
    try:
        page = visit(live).page
        page.route("**/jobs?active=true*", lambda route: route.fulfill(json=[]))
        row(page, "brief.mp4").get_by_role("button", name="Index").click()
        state = row(page, "brief.mp4").locator(".state")
        state.filter(has_text="ready").wait_for(timeout=60_000)
        assert state.all_inner_texts() == ["ready"]
    finally:
        file.unlink()


def test_the_budget_outlives_a_reload(visit, live):
    page = visit(live).page
    ask(page, "Where is it?")
    page.get_by_role("button", name="16 more").click()
    assert len(shown(page)) == 24
    assert page.locator(".tiles .added").count() == 16
    page.reload()
    page.locator("#report h1").wait_for()
    assert len(shown(page)) == 24
    page.goto(live.url)  # without an address that names it, the last one is taken
    page.locator("#ask").wait_for()
    ask(page, "Where else is it?")
    assert len(shown(page)) == 24
    page.go_back()


def test_the_ranking_is_downloaded_and_exported_in_every_style(visit, live, tmp_path):
    page = visit(live).page
    ask(page, "Where is it?")
    page.locator(".menu summary").click()
    with page.expect_download() as kept:
        page.get_by_role("button", name="Download the ranking").click()
    assert kept.value.suggested_filename == "film.json"
    kept.value.save_as(tmp_path / "film.json")
    assert Ranking.load(tmp_path / "film.json").frames.tolist() == saved(live, page).frames.tolist()
    styles = page.locator("#style option").evaluate_all("all => all.map(option => option.value)")
    assert styles == list(STYLES)
    page.get_by_role("button", name="16", exact=True).click()
    page.locator(".menu summary").click()  # a click elsewhere has closed it
    for style in styles:
        page.locator("#style").select_option(style)
        with page.expect_download() as kept:
            page.get_by_role("button", name="Download the messages").click()
        assert kept.value.suggested_filename == f"film-16-{style}.json"
        kept.value.save_as(tmp_path / "messages.json")
        made = json.loads((tmp_path / "messages.json").read_text())
        assert made["messages"][0]["role"] == "user"


def test_an_upload_can_be_asked_about(visit, live, films):
    page = visit(live).page
    page.locator("#file").set_input_files(films / "mine.mp4")
    page.locator("#video option:checked").filter(has_text="mine.mp4 (0:06)").wait_for(
        state="attached", timeout=60_000
    )
    ask(page, "And in mine?", "mine.mp4")
    assert len(shown(page)) == 8


def test_what_is_no_video_is_refused_with_its_reason(visit, live, tmp_path):
    watched = visit(live)
    watched.excused = ["422"]  # the browser notes the refusal
    (tmp_path / "letter.mp4").write_text("Dear server,")
    watched.page.locator("#file").set_input_files(tmp_path / "letter.mp4")
    alert = watched.page.get_by_role("alert").filter(has_text="not accepted")
    alert.wait_for(timeout=60_000)
    assert "not a video that FFmpeg can read" in alert.inner_text()


def test_the_video_plays_at_the_chosen_frame(visit, live):
    page = visit(live).page
    ask(page, "Where is it?")
    ranking = saved(live, page)
    prefix = ranking.prefix(8)
    page.locator(".tiles button").nth(5).click()
    page.get_by_role("button", name="Play from here").click()
    player = page.locator("#player video")
    until(page, "document.querySelector('#player video').readyState >= 2")
    assert page.locator("#player").is_visible()
    seconds = float(prefix.seconds[5])
    now = player.evaluate("video => { video.pause(); return video.currentTime; }")
    assert seconds <= now < seconds + 3
    player.evaluate("(video, t) => { video.currentTime = t; }", seconds + 0.02)
    until(page, "!document.querySelector('#player video').seeking")
    page.get_by_role("button", name="Close the player").click()
    assert not page.locator("#player").is_visible()


def test_a_player_that_cannot_play_closes_and_says_why(visit, live):
    page = visit(live).page
    ask(page, "Where is it?")
    page.route("**/videos/*/file", lambda route: route.fulfill(body=b"not a video", content_type="video/mp4"))
    page.locator(".tiles button").first.click()
    page.get_by_role("button", name="Play from here").click()
    page.locator("#player p").filter(has_text="This browser cannot play this file (h264)").wait_for()
    assert not page.locator("#player video").is_visible()
    page.unroute("**/videos/*/file")
    page.locator(".tiles button").first.click()
    page.get_by_role("button", name="Play from here").click()  # it tries again
    until(page, "document.querySelector('#player video').readyState >= 2")
    assert page.locator("#player video").is_visible()
    page.get_by_role("button", name="Close the player").press("Escape")
    assert not page.locator("#player").is_visible()


def test_the_first_frame_is_in_the_first_window(visit, live):
    for size in (DESKTOP, PHONE):
        page = visit(live, size).page
        ask(page, "Where is it?")
        page.evaluate("scrollTo(0, 0)")
        picture = page.locator(".tiles .shot").first.bounding_box()
        assert picture["y"] + picture["height"] < size[1]
        assert not page.locator(".timeline").is_visible()


def test_another_video_clears_the_result_and_back_returns_to_it(visit, live):
    page = visit(live).page
    ask(page, "Where is it?")
    row(page, "second.mp4").locator(".name").click()
    page.locator("#report h1").wait_for(state="detached")
    assert page.evaluate("document.activeElement.id") == "question"
    assert page.url == f"{live.url}/"
    assert page.locator("#video option:checked").inner_text().startswith("second.mp4")
    page.go_back()
    page.locator("#report h1").filter(has_text="Where is it?").wait_for()
    until(page, "document.querySelector('#video').selectedOptions[0].text.startsWith('film.mp4')")
    option_ = page.locator("#video option").filter(has_text="second.mp4")
    page.locator("#video").select_option(value=option_.first.get_attribute("value"))
    page.locator("#report h1").wait_for(state="detached")


def test_a_file_that_is_registered_after_back_does_not_become_the_chosen_video(visit, live):
    page = visit(live).page
    ask(page, "Where is it?")
    held = []
    page.route(
        "**/videos", lambda route: held.append(route) if route.request.method == "POST" else route.continue_()
    )
    with page.expect_request(lambda request: request.method == "POST"):
        row(page, "later.mp4").locator(".name").click()  # only this test registers it
    page.locator("#report h1").wait_for(state="detached")
    page.go_back()
    page.locator("#report h1").filter(has_text="Where is it?").wait_for()
    assert page.locator("#video option:checked").inner_text().startswith("film.mp4")
    [registration] = held
    registration.continue_()
    page.locator("#video option[value^='id:']").filter(has_text="later.mp4").wait_for(state="attached")
    assert page.locator("#video option:checked").inner_text().startswith("film.mp4")


def test_an_address_that_names_nothing_clears_the_page(visit, live):
    watched = visit(live)
    watched.excused = ["404"]
    page = watched.page
    ask(page, "Where is it?")
    page.evaluate("location.hash = 'unknown'")
    page.get_by_role("alert").filter(has_text="no such ranking").wait_for()
    assert page.locator("#report h1").count() == 0
    assert "Choose or upload a video" in page.locator("#report").inner_text()
    page.go_back()
    page.locator("#report h1").wait_for()
    page.evaluate("location.hash = ''")
    page.locator("#report h1").wait_for(state="detached")


def test_what_to_look_for_and_the_preset_are_sent_and_come_back(visit, live):
    page = visit(live).page
    page.locator("#choices summary").click()
    page.locator("#look-for").fill("a glowing kiln\n\n cups on a shelf ")
    with page.expect_request(lambda request: request.method == "POST" and "/rankings" in request.url) as sent:
        ask(page, "Which kiln?")
    assert sent.value.post_data_json["look_for"] == ["a glowing kiln", "cups on a shelf"]
    assert sent.value.post_data_json["preset"] == "residual"
    page.reload()
    page.locator("#report h1").wait_for()
    assert page.locator("#look-for").input_value() == "a glowing kiln\ncups on a shelf"
    page.locator("#look-for").fill("")
    page.locator("#preset").select_option("paper")
    ask(page, "Which other kiln?")
    ranking = saved(live, page)
    assert ranking.config.ranking.rule == "paper"
    assert ranking.look_for is None
    page.reload()
    page.locator("#report h1").wait_for()
    assert page.locator("#preset").input_value() == "paper"


def test_a_part_of_the_video_is_asked_about_and_comes_back(visit, live):
    watched = visit(live)
    page = watched.page
    page.locator("#choices summary").click()
    page.locator("#video").select_option(
        label=page.locator("#video option", has_text="film.mp4").inner_text()
    )
    page.locator("#start").fill("0:02")
    page.locator("#end").fill("soon")
    page.locator("#question").fill("Which part?")
    watched.excused.append("422")
    page.get_by_role("button", name="Ask", exact=True).click()
    page.get_by_role("alert").filter(has_text="end: give seconds or [HH:]MM:SS").wait_for()
    page.locator("#end").fill("4.5")
    page.get_by_role("button", name="Ask", exact=True).click()
    page.locator("#report h1").filter(has_text="Which part?").wait_for(timeout=60_000)
    ranking = saved(live, page)
    assert (ranking.config.index.start, ranking.config.index.end) == (2.0, 4.5)
    watched.screenshot("live-part")
    page.reload()
    page.locator("#report h1").wait_for()
    assert page.locator("#choices").evaluate("choices => choices.open")
    assert (page.locator("#start").input_value(), page.locator("#end").input_value()) == ("0:02", "0:04.5")
    row(page, "second.mp4").locator(".name").click()
    assert page.locator("#start").input_value() == page.locator("#end").input_value() == ""


def test_links_that_lead_outside_are_named(visit, live, films):
    links = [films / "folder" / "link.mp4", films / "folder" / "away"]
    links[0].symlink_to(films / "mine.mp4")
    links[1].symlink_to(films, target_is_directory=True)
    try:
        page = visit(live).page
        page.locator("#outside").filter(has_text="2 links lead outside the folder").wait_for()
        assert page.locator("#outside").inner_text().endswith("cannot be used: away, link.mp4")
        assert page.locator("#video option", has_text="link.mp4").count() == 0
    finally:
        for link in links:
            link.unlink()


@pytest.mark.parametrize("preset", ["paper", "no-zoom"])
def test_the_page_shows_the_preset_of_the_server(visit, serve, films, preset):
    server = serve("--preset", preset, videos=films / "folder")
    page = visit(server).page
    until(page, f"document.getElementById('preset').value === '{preset}'")
    ask(page, "Where is it?")
    assert saved(server, page).config == MECConfig.preset(preset)


def test_pictures_of_a_larger_budget_come_one_by_one(visit, live):
    """Those that are there stay, and one that is late holds up none of the others."""
    page = visit(live).page
    ask(page, "Where is it?")
    page.get_by_role("button", name="32", exact=True).click()
    loaded(page)
    ranking = saved(live, page)
    known = page.locator(f".tiles [data-frame='{ranking.frames[0]}'] img")
    address = known.get_attribute("src")
    late = int(ranking.frames[40])
    held, released = [], []

    def hold(route):
        if released:
            route.continue_()
        else:
            held.append(route)

    page.route(f"**/frames/{late}?*", hold)
    page.get_by_role("button", name="64", exact=True).click()
    assert len(shown(page)) == 64
    assert known.get_attribute("src") == address
    page.locator(f"[data-frame='{late}']").scroll_into_view_if_needed()
    there = "[...document.querySelectorAll('.tiles img')].filter(i => i.complete && i.naturalWidth).length"
    until(page, f"{there} === 63")
    released.append(True)
    for route in held:
        route.continue_()
    until(page, f"{there} === 64")


def test_printing_waits_for_every_picture(visit, live):
    page = visit(live, PHONE).page
    ask(page, "Where is it?")
    noted = "() => { window.printed = [...document.querySelectorAll('main img')]; }"
    page.evaluate(f"(window.print = {noted}, 0)")  # a function would be called
    page.get_by_role("button", name="64", exact=True).click()
    page.locator(".menu summary").click()
    page.get_by_role("button", name="Print, or save as PDF").click()
    until(page, "Boolean(window.printed)")
    assert page.evaluate("printed.length") > 64  # with those of the film strip
    assert page.evaluate("printed.every(image => image.complete && image.naturalWidth > 0)")


def test_videos_have_a_picture_a_length_and_a_date_and_can_be_filtered(visit, live, films):
    live.indexed("film.mp4")
    page = visit(live).page
    film = row(page, "film.mp4")
    until(page, "[...document.querySelectorAll('#videos .thumb img')].some(i => i.naturalWidth > 0)")
    assert re.search(r"0:12 · .*20\d\d", film.inner_text())
    everything = page.locator("#videos > ul > li").count()
    page.locator("#filter").fill("FILM")
    assert page.locator("#videos > ul > li .name").all_inner_texts() == ["film.mp4"]
    page.locator("#filter").fill("")
    assert page.locator("#videos > ul > li").count() == everything


def test_all_videos_of_a_folder_are_indexed_at_once(visit, live, films):
    added = [films / "folder" / f"batch-{i}.mp4" for i in range(3)]
    for file in added[:2]:
        shutil.copy(films / "unwanted.mp4", file)
    added[2].write_text("no video")
    try:
        watched = visit(live)
        watched.excused = ["422"]
        page = watched.page
        page.locator("#filter").fill("batch-")
        page.get_by_role("button", name="Index all 3").click()
        for i in range(2):
            row(page, f"batch-{i}.mp4").locator(".state").filter(has_text="ready").wait_for(timeout=60_000)
        page.get_by_role("alert").filter(has_text="batch-2.mp4: ").wait_for()
        row(page, "batch-2.mp4").locator(".name").click()  # a file of the folder can be chosen as well
        assert page.evaluate("document.activeElement.id") == "question"
        page.get_by_role("alert").filter(has_text="not a video").wait_for()
    finally:
        for file in added:
            file.unlink()


def test_a_link_brings_the_ranking_back(visit, live):
    first = visit(live).page
    ask(first, "Where is it?")
    again = visit(live, path=f"/#{identity(first)}").page
    again.locator("#report h1").filter(has_text="Where is it?").wait_for()
    assert shown(again) == shown(first)
    assert again.locator("#question").input_value() == "Where is it?"


def test_html_in_a_question_is_shown_and_not_run(visit, live):
    page = visit(live).page
    ask(page, HOSTILE)
    assert page.locator("#report h1").inner_text() == HOSTILE
    assert page.locator("h1 *").count() == 0
    assert page.evaluate("window.ran") is None


def test_a_token_is_asked_for_once(visit, tmp_path, films, scores):
    server = Server(tmp_path, "--scorer", scores, videos=films / "folder", env={"FRAMENEST_TOKEN": TOKEN})
    server.start(TOKEN)
    try:
        watched = visit(server)
        watched.excused = ["401", "403"]
        page = watched.page
        page.locator("#token").fill("not the token, surely")
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("alert").filter(has_text="this is not the token").wait_for()
        width = page.locator("#sign-in").bounding_box()["width"]
        assert 300 < width < 500
        watched.screenshot("live-sign-in")
        page.locator("#token").fill(TOKEN)
        page.get_by_role("button", name="Sign in").click()
        page.locator("#ask").wait_for()
        ask(page, "Where is it?")
        loaded(page)
        cookies = watched.context.cookies()
        assert [(c["httpOnly"], c["sameSite"]) for c in cookies] == [(True, "Strict")]
        assert TOKEN not in cookies[0]["value"]
        page.get_by_role("button", name="Sign out").click()
        page.locator("#sign-in").wait_for()
        assert not page.locator("#ask").is_visible()
        assert watched.context.cookies() == []
        assert page.url == f"{server.url}/"
    finally:
        server.stop()


@pytest.fixture
def answering(tmp_path, films, scores, endpoint):
    """A server with a model that answers."""
    answers = ("--upstream", endpoint.url, "--answer-model", "canned")
    server = Server(tmp_path, "--scorer", scores, *answers, videos=films / "folder").start()
    yield server
    server.stop()


def test_an_answer_is_shown_beside_the_frames(visit, answering, endpoint):
    page = visit(answering).page
    ask(page, "Where is it?")
    page.get_by_role("button", name="16", exact=True).click()
    assert not page.locator("#answered").is_visible()
    page.get_by_role("button", name="Answer", exact=True).click()
    page.locator("#answered").filter(has_text="a canned answer").wait_for(timeout=60_000)
    assert "16 frames" in page.locator("#answered").inner_text()
    asked = json.dumps(endpoint.asked[-1])
    assert CITE in asked
    assert "Answer with the option's letter" not in asked
    page.locator("#cite").uncheck()
    page.locator("#choices summary").click()
    page.locator("#options").fill("a cup\n\n a kiln \n")
    page.get_by_role("button", name="Ask", exact=True).click()
    page.locator("#report .options li").nth(1).wait_for(timeout=60_000)
    page.get_by_role("button", name="Answer", exact=True).click()
    page.locator("#answered").filter(has_text="a canned answer").wait_for(timeout=60_000)
    asked = json.dumps(endpoint.asked[-1])
    assert "A. a cup\\nB. a kiln" in asked
    assert CITE not in asked
    page.reload()
    page.locator("#report h1").wait_for()
    assert page.locator("#options").input_value() == "a cup\na kiln"


def test_times_in_an_answer_play_the_video(visit, answering, endpoint):
    watched = visit(answering)
    page = watched.page
    ask(page, "Where is it?")
    prefix = saved(answering, page).prefix(8)
    second = float(prefix.seconds[5])
    endpoint.says = f"🔥 <b>It</b> is there [{second:.1f}s], for 3 hours."
    page.get_by_role("button", name="Answer", exact=True).click()
    link = page.locator("#answered button")
    link.wait_for(timeout=60_000)
    assert page.locator("#answered").inner_text().startswith(endpoint.says)
    assert page.locator("#answered b").count() == 0
    assert link.all_inner_texts() == [f"{second:.1f}s"]
    link.click()
    until(page, "document.querySelector('#player video').readyState >= 2")
    assert page.locator("#player p").inner_text() == f"from frame {prefix.frames[5]}"
    watched.screenshot("live-answer")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("size", "name"), [(DESKTOP, "desktop"), (PHONE, "phone")])
def test_fits_and_is_accessible(visit, live, size, name, scheme):
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="needs the extra `test-browser`"
    )
    watched = visit(live, size, scheme)
    page = watched.page
    watched.screenshot(f"live-empty-{name}-{scheme}")
    ask(page, "Where is it?")
    film = row(page, "film.mp4")
    film.get_by_role("button", name=re.compile(r"\d+ question")).click()
    film.locator(".questions li").first.wait_for()
    film.get_by_role("button", name="Delete film.mp4").click()
    page.locator("#choices summary").click()
    page.get_by_role("button", name="32", exact=True).click()
    page.locator(".menu summary").click()
    loaded(page)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    found = axe.Axe().run(page).response["violations"]
    assert [(v["id"], [node["html"][:80] for node in v["nodes"]][:3]) for v in found] == []
    watched.screenshot(f"live-{name}-{scheme}")
    page.keyboard.press("Escape")  # the menu
    page.locator(".tiles button").nth(2).click()
    page.get_by_role("button", name="Play from here").click()
    until(page, "document.querySelector('#player video').readyState >= 2")
    watched.screenshot(f"live-playing-{name}-{scheme}")


def test_several_people_at_once(visit, live):
    """Two pages, two questions: each shows its own."""
    pages = [visit(live).page for _ in range(2)]
    for page, question in zip(pages, ("The first one?", "The second one?"), strict=True):
        ask(page, question)
    assert [page.locator("#report h1").inner_text() for page in pages] == [
        "The first one?",
        "The second one?",
    ]


@pytest.fixture(scope="module")
def colours(tmp_path_factory):
    """A folder of one indexed video and one that is not, and a server that can search them."""
    folder = tmp_path_factory.mktemp("colours")
    coloured_video(folder / "sunset.mp4", ("grey", 4), ("red", 3), ("blue", 3), size=(320, 192))
    coloured_video(folder / "roses.mp4", ("green", 4), ("red", 2), size=(320, 192))
    env = install_colour_scorer(tmp_path_factory.mktemp("site"))
    server = Server(tmp_path_factory.mktemp("searching"), "--scorer", "colour", videos=folder, env=env)
    server.start().indexed("sunset.mp4")
    yield server
    server.stop()


def find(page, query):
    page.get_by_role("searchbox", name="Search all videos").fill(query)
    page.get_by_role("button", name="Search", exact=True).click()
    page.locator("#found-title").filter(has_text=query).wait_for(timeout=60_000)
    page.locator("#work").wait_for(state="hidden", timeout=60_000)


def test_a_search_leads_to_a_moment_and_back_to_the_results(visit, colours):
    watched = visit(colours)
    page = watched.page
    find(page, "a red sky")
    moments = page.locator(".moments a")
    best = moments.first
    best.wait_for()
    assert best.locator(".name").inner_text() == "sunset.mp4"
    assert best.locator("time").inner_text() == "0:04 – 0:07"
    assert re.fullmatch(r"seen\s*red 0\.\d\d", best.locator(".reason").inner_text())
    loaded(page)
    address, texts = page.url, moments.all_inner_texts()
    assert "#search=" in address
    picture = re.search(r"/frames/(\d+)", best.locator("img").get_attribute("src"))[1]
    best.click()
    page.locator("#report h1").filter(has_text="a red sky").wait_for(timeout=60_000)
    assert f"frame {picture}" in page.locator("dialog[open]").inner_text()
    assert not page.locator("#found").is_visible()
    assert saved(colours, page).question == "a red sky"
    page.go_back()
    page.locator("#found").wait_for()
    assert (page.url, moments.all_inner_texts()) == (address, texts)
    assert page.locator("#report h1").count() == 0
    page.reload()  # and a link brings them back as well
    moments.first.wait_for()
    assert moments.all_inner_texts() == texts
    assert page.locator("#query").input_value() == "a red sky"


def test_what_is_not_indexed_is_offered_and_then_searched(visit, colours):
    page = visit(colours).page
    find(page, "red, red roses")
    assert page.locator("#searched").inner_text() == "1 of 2 videos searched; 1 not indexed yet"
    page.get_by_role("button", name="Index it and search again").click()
    page.locator("#searched").filter(has_text="2 of 2 videos searched").wait_for(timeout=60_000)
    page.locator(".moments .name", has_text="roses.mp4").first.wait_for(timeout=60_000)
    row(page, "roses.mp4").get_by_role("button", name="Delete roses.mp4").click()
    page.get_by_role("button", name="Delete", exact=True).click()  # its moments go with it
    page.locator(".moments .name", has_text="roses.mp4").first.wait_for(state="detached", timeout=60_000)
    assert "1 of 2 videos searched" in page.locator("#searched").inner_text()


def test_moments_stream_in(visit, colours):
    """Each answer of the server is drawn; what is there stays in place."""
    page = visit(colours).page
    find(page, "blue")
    search = colours.http.get(f"/searches/{page.url.rpartition('=')[2]}").json()
    moment = search["moments"][0]
    running = search | {"job": search["job"] | {"state": "running", "stage": "videos", "done": 1, "total": 3}}
    answers = [running | {"moments": []}, running | {"moments": [moment | {"frame": 7, "why": "first"}]}]

    def answer(route):
        route.fulfill(json=answers[0] if len(answers) == 1 else answers.pop(0))

    page.route(f"**/searches/{search['id']}", answer)
    page.reload()
    page.locator("#stage").filter(has_text="looking into the best videos, 1 of 3").wait_for()
    first = page.locator(".moments li").filter(has_text="first")
    first.wait_for()
    page.evaluate("document.querySelector('.moments li').dataset.kept = 'yes'")
    later = moment | {"frame": 8, "why": "later, and better"}
    answers[0] = running | {"moments": [later, moment | {"frame": 7, "why": "first"}]}
    page.locator(".moments li").filter(has_text="later, and better").wait_for()
    reasons = page.locator(".moments .reason").all_inner_texts()
    assert ["later" in reasons[0], "first" in reasons[1]] == [True, True]
    assert first.get_attribute("data-kept") == "yes"
    told = {"summary": "nothing clearly matches (the scorer knows: map)"}
    answers[0] = search | told | {"moments": [moment | {"confident": False}]}
    page.locator("#searched").filter(has_text=f"{told['summary']}; 1 of 2 videos").wait_for()
    assert page.locator(".moments .reason b").all_inner_texts() == ["weak, seen"]
    assert not page.locator("#work").is_visible()


def test_a_search_that_fails_says_why(visit, live):
    live.indexed("film.mp4")
    page = visit(live).page
    page.locator("#query").fill(HOSTILE)
    page.get_by_role("button", name="Search", exact=True).click()
    page.get_by_role("alert").filter(has_text="scorer 'table' cannot search").wait_for(timeout=60_000)
    assert HOSTILE in page.locator("#found-title").inner_text()
    assert page.evaluate("window.ran") is None


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("size", "name"), [((1440, 900), "desktop"), (PHONE, "phone")])
def test_results_fit_and_are_accessible(visit, colours, size, name, scheme):
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="needs the extra `test-browser`"
    )
    watched = visit(colours, size, scheme)
    find(watched.page, "a blue sea under a red sky")
    loaded(watched.page)
    assert watched.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    found = axe.Axe().run(watched.page).response["violations"]
    assert [(v["id"], [node["html"][:80] for node in v["nodes"]][:3]) for v in found] == []
    watched.screenshot(f"live-search-{name}-{scheme}")
