"""The report page in a real browser."""

import json

import pytest

from browser import DESKTOP, PHONE, Watched, chromium
from framenest import MEC, MECConfig, Ranking
from framenest.cli import main
from framenest.report.document import document
from framenest.report.page import view_script
from framenest.selectors import load_selector
from framenest.selectors.selection import Selection, load_result
from framenest.session import Session
from framenest.testing import TableScorer
from framenest.video.opening import open_video
from score_tables import zero_elsewhere

HOSTILE = (
    "</script><script>window.ran=1</script>"
    '<img src=x onerror="window.ran=1"> Is <b>this</b> "safe" & \'sound\'?'
)

TABLE = zero_elsewhere({40: 1.0, 41: 0.9, 150: 0.8, 151: 0.7, 220: 0.6})


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def files(clip, tmp_path_factory):
    """A ranking with a hostile question, an ablation of it, two selections, and their pages."""
    folder = tmp_path_factory.mktemp("report")
    scorer = TableScorer(TABLE)
    MEC(scorer=scorer).rank(clip, HOSTILE).save(folder / "mec.json")
    MEC(MECConfig.preset("evidence-only"), scorer=scorer).rank(clip, HOSTILE).save(folder / "evidence.json")
    opened = open_video(clip)
    for name in ("uniform", "top-k"):
        selector = load_selector(name, Session(scorer))
        selector.select(opened, HOSTILE, [8, 16, 32]).save(folder / f"{name}.json")
    names = ["mec", "evidence", "uniform", "top-k"]
    write(folder, ["mec"], "one.html")
    write(folder, names, "several.html")
    return folder


def write(folder, names, page):
    with pytest.raises(SystemExit) as ended:
        main(
            ["report", *(str(folder / f"{name}.json") for name in names), "-o", str(folder / page), "--quiet"]
        )
    assert ended.value.code == 0


@pytest.fixture
def visit(browser, files):
    """Open a page; at the end of the test it must have said nothing and asked for nothing."""
    opened = []

    def go(name, size=DESKTOP, scheme="light", why=False, at=""):
        watched = Watched(browser, size, scheme)
        opened.append(watched)
        watched.page.goto((files / name).as_uri() + at)
        if why:
            unfold(watched.page)
        return watched

    yield go
    for watched in opened:
        assert watched.said == []
        outside = [url for url in watched.asked if not url.startswith(("data:", files.as_uri()))]
        assert outside == []
        watched.context.close()


@pytest.fixture
def ranking(files):
    return Ranking.load(files / "mec.json")


def shown(page, place=0):
    """Frame numbers of the tiles of one result, in the order of the page."""
    return (
        page.locator(".tiles")
        .nth(place)
        .locator("button")
        .evaluate_all("all => all.map(t => Number(t.dataset.frame))")
    )


def unfold(page):
    """Open the timeline, and wait until it is as wide as the page gives it."""
    page.locator(".why > summary").click()
    page.wait_for_function(
        """() => {
            const lane = document.querySelector("svg.lane");
            return Math.abs(lane.parentNode.clientWidth - lane.clientWidth) < 2;
        }"""
    )


def large(page):
    """The dialog that shows a frame."""
    return page.get_by_role("dialog", name="Frame")


def set_budget(page, budget):
    """With the keys, as a person would."""
    slider = page.locator("#budget")
    slider.focus()
    slider.press("Home")
    for _ in range(budget - 1):
        slider.press("ArrowRight")
    assert page.locator(".number").inner_text() == str(budget)


def test_each_budget_shows_its_prefix_in_time_order(visit, ranking):
    page = visit("one.html").page
    smaller = set()
    for budget in (1, 5, 8, 9, 16, 32, 40):
        set_budget(page, budget)
        frames = shown(page)
        assert frames == ranking.prefix(budget).frames.tolist()
        assert smaller <= set(frames)
        smaller = set(frames)


def test_the_slider_follows_the_mouse_to_both_ends(visit, ranking):
    page = visit("one.html").page
    box = page.locator("#budget").bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] / 2, middle)
    page.mouse.down()
    half = int(page.locator(".number").inner_text())
    assert 1 < half < len(ranking)
    page.mouse.move(box["x"] + box["width"] + 20, middle)
    assert len(shown(page)) == len(ranking)
    page.mouse.move(box["x"] - 20, middle)
    assert shown(page) == [int(ranking.frames[0])]
    page.mouse.up()


def test_new_frames_are_marked_and_the_others_kept(visit, ranking):
    page = visit("one.html").page
    page.get_by_role("button", name="16", exact=True).click()
    added = page.locator(".tiles .added").evaluate_all("all => all.map(t => Number(t.dataset.frame))")
    kept = page.locator(".tiles .kept").evaluate_all("all => all.map(t => Number(t.dataset.frame))")
    assert sorted(added) == sorted(ranking.frames[8:16].tolist())
    assert sorted(kept) == sorted(ranking.frames[:8].tolist())
    assert (
        page.get_by_role("status").first.inner_text().startswith("16 frames: all 8 of budget 8 kept, 8 new; ")
    )
    assert page.locator(".tick").count() == 16


def test_pointing_at_a_frame_shows_it_on_the_timeline(visit, ranking):
    page = visit("one.html", why=True).page
    tile = page.locator(".tiles button").nth(3)
    tile.scroll_into_view_if_needed()
    tile.hover()
    line = page.locator(".crosshair").bounding_box()["x"]
    tick = page.locator(".tick.pointed").bounding_box()
    assert abs(tick["x"] + tick["width"] / 2 - line) < 2
    seconds = float(ranking.prefix(8).seconds[3])
    plot = page.locator("svg.lane").bounding_box()
    expected = plot["x"] + 6 + seconds / ranking.video.duration * (plot["width"] - 12)
    assert abs(line - expected) < 2


def test_pointing_at_the_timeline_shows_the_frame_and_a_click_opens_it(visit, ranking):
    page = visit("one.html", why=True).page
    prefix = ranking.prefix(8)
    page.locator("svg.lane").scroll_into_view_if_needed()
    plot = page.locator("svg.lane").bounding_box()
    x = plot["x"] + 6 + float(prefix.seconds[5]) / ranking.video.duration * (plot["width"] - 12)
    page.mouse.move(x, plot["y"] + 40)
    pointed = page.locator(".tiles .pointed")
    frame = int(pointed.get_attribute("data-frame"))
    near = float(prefix.seconds[prefix.frames.tolist().index(frame)])
    assert abs(near - float(prefix.seconds[5])) < 0.1
    assert page.locator(".card").is_visible()
    page.mouse.click(x, plot["y"] + 40)
    rank = ranking.frames.tolist().index(frame)
    why = large(page).inner_text()
    assert f"#{rank + 1}" in why
    assert f"frame {frame}" in why
    for measure, values in {
        "utility": ranking.terms["utility"],
        "evidence": ranking.evidence,
        **ranking.cues,
    }.items():
        assert f"{float(values[rank]):.3f}" in why, measure
    page.keyboard.press("Escape")
    assert not large(page).is_visible()


def test_a_frame_opens_large_and_the_arrow_keys_go_on(visit, ranking):
    page = visit("one.html").page
    prefix = ranking.prefix(8)
    page.locator(".tiles button").nth(2).click()
    box = large(page)
    assert f"frame {prefix.frames[2]}" in box.inner_text()
    assert "3 of 8 in time order" in box.inner_text()
    picture = box.get_by_role("img").bounding_box()
    assert picture["width"] > 600
    page.keyboard.press("ArrowRight")
    assert f"frame {prefix.frames[3]}" in box.inner_text()
    box.get_by_role("button", name="next frame").click()
    assert f"frame {prefix.frames[4]}" in box.inner_text()
    page.keyboard.press("End")
    page.keyboard.press("ArrowRight")
    assert f"frame {prefix.frames[7]}" in box.inner_text()
    assert box.get_by_role("button", name="next frame").get_attribute("aria-disabled") == "true"
    page.keyboard.press("ArrowLeft")
    box.locator(".term", has_text="relevance").hover()
    assert page.locator(".tip").is_visible()  # above the dialog
    page.keyboard.press("Escape")
    assert not page.locator(".tip").is_visible()
    assert box.is_visible()
    page.keyboard.press("+")
    assert page.locator(".number").inner_text() == "8"
    page.keyboard.press("Escape")
    box.wait_for(state="hidden")
    focused = f"document.activeElement.dataset.frame === '{prefix.frames[6]}'"
    page.wait_for_function(focused)  # the tile of the frame that was shown last
    page.keyboard.press("Enter")
    page.mouse.click(4, 4)  # beside it
    box.wait_for(state="hidden")


def test_the_frames_come_first(visit, ranking):
    """Question, budget, frames; the rest is folded."""
    for size in (DESKTOP, PHONE):
        page = visit("one.html", size).page
        tops = [page.locator(part).first.bounding_box()["y"] for part in ("h1", ".budget", ".tiles img")]
        assert tops == sorted(tops)
        picture = page.locator(".tiles img").first.bounding_box()
        assert picture["y"] + picture["height"] < size[1]
        assert not page.locator(".timeline").is_visible()
        reasons = [": ".join(pair) for pair in zip(ranking.roles, ranking.reasons, strict=True)]
        shown_ = page.locator(".tiles .reason").all_inner_texts()
        assert sorted(shown_) == sorted(reasons[:8])
        marked = page.locator(".tiles .match").count()
        assert marked == ranking.roles[:8].count("evidence")
        assert f"; {marked} match" in page.locator(".budget .said").inner_text()


def test_the_budget_is_in_the_address(visit, ranking):
    page = visit("one.html", at="#k=24").page
    assert len(shown(page)) == 24
    page.get_by_role("button", name="16", exact=True).click()
    assert page.url.endswith("one.html#k=16")
    page.reload()
    assert len(shown(page)) == 16
    page.evaluate("location.hash = 'k=32'")
    page.wait_for_function("document.querySelectorAll('.tiles button').length === 32")
    for nonsense in ("#k=", "#k=x", "#k=0", "#other"):
        assert len(shown(visit("one.html", at=nonsense).page)) == 8
    assert len(shown(visit("one.html", at="#k=9999").page)) == len(ranking)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_paper_has_the_legend_the_film_strip_and_the_whole_timeline(visit, scheme):
    page = visit("one.html", scheme=scheme).page
    pictures = page.pdf(format="A4").count(b"/Subtype /Image")
    film = page.locator(".film img").count()
    assert pictures >= 8
    assert film >= 4
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 700, "height": 990})
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    for part in (".legend", ".film", ".lane", ".axis", ".cue.evidence", ".making", ".numbers tbody tr"):
        assert page.locator(part).first.is_visible(), part
    for part in (".steps", ".menu", ".more", "#budget", ".theme"):
        assert not page.locator(part).first.is_visible(), part
    for picture in page.locator(".plot svg, .film").all():
        box = picture.bounding_box()
        assert 0 <= box["x"] < box["x"] + box["width"] <= 700
    text = page.locator(".axis text").first.evaluate("text => text.getBoundingClientRect().height")
    assert text > 9  # drawn for paper, not made smaller
    style = page.locator(".legend i").first.evaluate(
        "e => [getComputedStyle(e).printColorAdjust, getComputedStyle(e).backgroundColor]"
    )
    assert style == ["exact", "rgb(190, 60, 30)"]  # of the light colours, whatever the screen has
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert not page.locator(".why").evaluate("fold => fold.open")


def test_the_parts_of_the_utility_add_up(visit, ranking):
    page = visit("one.html").page
    set_budget(page, 40)
    for place in (0, 13, 39):
        page.locator(".tiles button").nth(place).click()
        parts = page.locator(".sum").first.locator("td:last-child").all_inner_texts()
        total = page.locator(".sum caption b").first.inner_text()
        assert sum(map(float, parts)) == pytest.approx(float(total), abs=0.002)
        page.keyboard.press("Escape")


def test_the_keyboard_alone_reaches_everything(visit, ranking):
    page = visit("one.html").page
    for _ in range(20):  # past the words that are explained
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "budget":
            break
        assert page.locator(".tip").is_visible()
    page.keyboard.press("PageUp")
    assert page.locator(".number").inner_text() == "16"
    page.locator(".tiles button").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    expected = ranking.prefix(16).frames[14]
    assert page.evaluate("document.activeElement.dataset.frame") == str(expected)
    page.keyboard.press("Enter")
    assert f"frame {expected}" in large(page).inner_text()
    page.keyboard.press("Escape")
    page.keyboard.press("+")
    assert page.locator(".number").inner_text() == "17"


def test_words_are_explained_on_hover_and_on_tap(visit):
    page = visit("one.html", why=True).page
    tip = page.locator(".tip")
    assert not tip.is_visible()
    page.locator(".row .term", has_text="observability").hover()
    assert "sharp" in tip.inner_text()
    page.mouse.move(5, 5)
    tip.wait_for(state="hidden")
    touch = visit("one.html", PHONE, why=True)
    page, tip = touch.page, touch.page.locator(".tip")
    page.locator(".row .term", has_text="relevance").click()
    page.mouse.move(5, 5)  # a tap keeps it
    assert "matches the question" in tip.inner_text()
    box = tip.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= PHONE[0]
    touch.screenshot("report-word-phone")
    page.keyboard.press("Escape")
    assert not tip.is_visible()


def test_every_word_of_the_page_has_its_explanation(visit):
    """What is printed as the name of a number, anywhere on the page."""
    for name in ("one.html", "several.html"):
        page = visit(name, why=True).page
        page.get_by_text("The numbers").click()
        page.locator(".tiles button").first.click()
        page.locator(".numbers tbody tr").first.wait_for()
        for place in (".row .name:not(button):not(.zooms)", ".numbers thead th", ".making dt", ".sum caption",
                      ".sum tbody th", ".timings tbody th"):  # fmt: skip
            named = page.locator(place).evaluate_all(
                "all => all.filter(e => !e.querySelector('.term')).map(e => e.textContent)"
            )
            assert set(named) <= {"video", "cues"}, place
        assert page.locator(".term").evaluate_all("all => all.every(e => e.dataset.about.length > 9)")


def test_keys_are_told(visit):
    watched = visit("one.html")
    page = watched.page
    page.keyboard.press("?")
    help_ = page.get_by_role("dialog", name="Keys and words")
    assert "Page Down" in help_.inner_text()
    assert "How sharp and well exposed" in help_.inner_text()
    watched.screenshot("report-help")
    page.keyboard.press("+")
    assert page.locator(".number").inner_text() == "8"
    page.keyboard.press("Escape")
    assert not help_.is_visible()
    page.get_by_role("button", name="Keys and words").click()
    assert help_.is_visible()
    help_.get_by_role("button", name="Close").click()
    assert not help_.is_visible()


@pytest.mark.parametrize("clipboard", ["with", "without"])
def test_frame_numbers_and_times_are_copied(visit, ranking, clipboard):
    watched = visit("one.html")
    page = watched.page
    watched.context.grant_permissions(["clipboard-read", "clipboard-write"])
    if clipboard == "without":  # as browsers have it on a page from another machine without TLS
        page.evaluate("window.pasted = navigator.clipboard.readText.bind(navigator.clipboard)")
        page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    else:
        page.evaluate("window.pasted = () => navigator.clipboard.readText()")
    prefix = ranking.prefix(8)
    assert not page.get_by_role("button", name="Copy frames").is_visible()
    page.locator(".menu summary").click()
    page.get_by_role("button", name="Copy frames").click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("pasted()") == ", ".join(map(str, prefix.frames.tolist()))
    page.get_by_role("button", name="Copy times").click()
    page.get_by_role("button", name="Copied").last.wait_for()
    page.get_by_role("button", name="Copy times").wait_for()
    times = [float(part) for part in page.evaluate("pasted()").split(", ")]
    assert times == pytest.approx(prefix.seconds.tolist(), abs=5.1e-5)
    page.keyboard.press("Escape")
    assert not page.get_by_role("button", name="Copy times").is_visible()
    page.keyboard.press("Enter")  # the focus is back on the menu's button
    assert page.get_by_role("button", name="Copy times").is_visible()
    page.locator("h1").click()
    page.get_by_role("button", name="Copy times").wait_for(state="hidden")


def test_16_more_are_the_next_16_ranks(visit, ranking):
    page = visit("one.html").page
    more = page.locator(".more button")
    more.click()
    assert shown(page) == ranking.prefix(24).frames.tolist()
    fresh = page.locator(".tiles .added").evaluate_all("all => all.map(tile => Number(tile.dataset.frame))")
    assert sorted(fresh) == sorted(ranking.frames[8:24].tolist())
    assert "all 8 of budget 8 kept, 16 new" in page.locator(".budget .said").inner_text()
    set_budget(page, 24)
    assert page.locator(".tiles .added").count() == 8  # by itself, 24 is compared with 16
    page.locator("#budget").press("End")
    assert more.is_disabled()
    page.locator("#budget").press("ArrowLeft")
    assert more.inner_text() == "1 more"


def test_every_budget_that_a_file_was_asked_for_has_a_button(visit, clip, files):
    selector = load_selector("uniform", Session(TableScorer(TABLE)))
    selector.select(open_video(clip), "Where?", [5, 12, 20]).save(files / "odd.json")
    write(files, ["odd"], "odd.html")
    page = visit("odd.html").page
    assert page.locator(".steps button").all_inner_texts() == ["5", "8", "12", "16", "20"]
    page.get_by_role("button", name="12", exact=True).click()
    assert shown(page) == load_result(files / "odd.json").prefix(12).frames.tolist()


def test_nothing_shines_through_the_bar_on_top(visit):
    for scheme in ("light", "dark"):
        page = visit("one.html", PHONE, scheme).page
        page.evaluate("scrollTo(0, 900)")
        colour = page.locator(".budget").evaluate("bar => getComputedStyle(bar).backgroundColor")
        assert colour.startswith("rgb("), colour  # rgba and color-mix have an alpha
        bar = page.locator(".budget").bounding_box()
        assert (bar["x"], bar["y"], bar["width"]) == (0, 0, PHONE[0])


def test_times_are_rounded_as_the_model_is_told(visit):
    page = visit("one.html").page
    moments = [0.04, 0.05, 0.25, 0.35, 0.75, 9.96, 59.96, 83.25, 83.75, 100.15, 3599.95]
    page.evaluate(view_script().replace("export ", "") + "; (window.clock = clock, 0)")
    for seconds in moments:
        said = page.evaluate("seconds => clock(seconds)", seconds)
        minutes, rest = divmod(round(float(f"{seconds:.1f}") * 10), 600)
        whole = f"{minutes // 60}:{minutes % 60:02d}" if minutes >= 60 else str(minutes)
        assert said == f"{whole}:{rest // 10:02d}.{rest % 10}"


def test_html_in_the_question_is_shown_and_not_run(visit):
    for name in ("one.html", "several.html"):
        page = visit(name).page
        assert page.locator("h1").inner_text() == HOSTILE
        assert page.locator("h1 *").count() == 0
        assert page.title() == f"{HOSTILE} · Framenest"
        assert page.evaluate("window.ran") is None


def test_the_numbers_as_a_table(visit, ranking):
    page = visit("one.html", why=True).page
    page.get_by_text("The numbers").click()
    rows = page.locator(".numbers tbody tr")
    rows.first.wait_for()  # the browser tells of the opening a little later
    assert rows.count() == 8
    assert rows.first.inner_text().split()[2] == str(ranking.frames[0])
    page.get_by_role("button", name="32", exact=True).click()
    assert rows.count() == 32


def test_several_results_share_one_axis(visit, files):
    page = visit("several.html", why=True).page
    results = [load_result(files / f"{name}.json") for name in ("mec", "evidence", "uniform", "top-k")]
    assert page.locator("[data-lane] button").all_inner_texts() == [
        "mec",
        "mec evidence-only",
        "uniform",
        "top-k",
    ]
    for budget in (8, 16, 32):
        page.get_by_role("button", name=str(budget), exact=True).click()
        for place, result in enumerate(results):
            assert shown(page, place) == result.prefix(budget).frames.tolist()
    set_budget(page, 20)
    held = [len(shown(page, place)) for place in range(4)]
    assert held == [20, 20, 16, 16]  # a selection shows its largest list within the budget
    uniform = results[2]
    assert isinstance(uniform, Selection)
    lost = set(uniform.prefixes[8].frames.tolist()) - set(uniform.prefixes[16].frames.tolist())
    assert page.locator("[data-lane='2'] .dropped").count() == len(lost) > 0
    assert page.locator("[data-lane='0'] .dropped").count() == 0
    lefts = {round(lane["x"]) for lane in page.locator("svg.lane").evaluate_all(
        "all => all.map(lane => ({x: lane.getBoundingClientRect().left}))")}  # fmt: skip
    assert len(lefts) == 1
    page.get_by_role("button", name="uniform").click()
    assert page.locator("svg.cue").count() == 0
    page.get_by_role("button", name="mec evidence-only").click()
    assert page.locator("svg.cue").count() == 4
    page.locator(".tiles").nth(2).locator("button").first.hover()
    assert page.locator(".crosshair").is_visible()


def test_a_drag_over_the_timeline_looks_closer(visit, ranking):
    page = visit("one.html", why=True).page
    page.locator("svg.lane").scroll_into_view_if_needed()
    box = page.locator("svg.lane").bounding_box()

    def ticks():
        all_of = page.locator(".ticks .tick").evaluate_all(
            "all => all.map(t => Number(t.getAttribute('x1')))"
        )
        return [x for x in all_of if 0 <= x <= box["width"]]

    assert len(ticks()) == 8
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 20)
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 20)
    page.mouse.up()
    within = [s for s in ranking.prefix(8).seconds if 3 <= s <= 6]
    assert len(ticks()) == len(within) > 0
    assert not large(page).is_visible()  # a drag is not a click
    page.get_by_role("button", name="Zoom out").click()
    assert len(ticks()) == 8
    page.get_by_role("button", name="Zoom in").press("Enter")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Zoom in"
    assert len(ticks()) < 8


def test_the_view_in_another_page_takes_its_pictures_and_plays(browser, ranking):
    """What the contract at the top of view.js promises to other pages."""
    watched = Watched(browser)
    made = document([ranking])
    steady = {"name": "speech", "weight": None, "about": "Said aloud.", "values": [0.5] * len(ranking.pool)}
    made["rankings"][0]["curves"].append(steady)  # a curve that the view has never heard of
    data = json.dumps(made).replace("<", "\\u003c")
    watched.page.set_content(f"""<div id="here" class="framenest"></div>
        <script type="module">{view_script()}
        window.asked = []; window.played = []; window.budgets = [];
        window.view = render(document.getElementById("here"), {data}, {{
          image: (frame, size) => {{ asked.push([frame, size]); return null; }},
          play: (frame, seconds) => played.push([frame, seconds]), budget: 4, changed: (k) => budgets.push(k),
        }});</script>""")
    page = watched.page
    assert shown(page) == ranking.prefix(4).frames.tolist()
    page.evaluate("view.setBudget(16)")
    assert page.evaluate("budgets") == [16]
    assert page.locator("svg.cue").count() == 5
    assert page.locator(".row .term", has_text="speech").get_attribute("data-about") == "Said aloud."
    assert shown(page) == ranking.prefix(16).frames.tolist()
    asked = page.evaluate("asked")
    assert {size for _, size in asked} == {"small", "large"}
    assert {frame for frame, _ in asked} >= set(ranking.frames[:16].tolist())
    page.locator(".tiles button").nth(2).click()
    assert [int(ranking.prefix(16).frames[2]), "full"] in page.evaluate("asked")
    page.get_by_role("button", name="Play from here").click()
    frame = int(ranking.prefix(16).frames[2])
    assert page.evaluate("played") == [[frame, pytest.approx(ranking.prefix(16).seconds[2], abs=1e-3)]]
    assert not large(page).is_visible()
    page.evaluate("view.destroy()")
    assert page.locator("#here > *").count() == 0
    assert watched.said == []
    watched.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("size", "name"), [(DESKTOP, "desktop"), (PHONE, "phone")])
def test_fits_and_is_accessible(visit, size, name, scheme):
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="needs the extra `test-browser`"
    )
    for page_name in ("one", "several"):
        watched = visit(f"{page_name}.html", size, scheme, why=True)
        page = watched.page
        page.get_by_role(
            "button", name="256" if (name, page_name) == ("phone", "one") else "32", exact=True
        ).click()
        page.get_by_text("The numbers").click()
        page.locator(".menu summary").first.click()
        for open_ in ("", "large"):
            if open_:
                page.locator(".tiles button").last.click()
                watched.screenshot(f"report-{page_name}-{name}-{scheme}-large")
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
            found = axe.Axe().run(page).response["violations"]
            assert [(v["id"], [node["html"] for node in v["nodes"]][:3]) for v in found] == []
        page.keyboard.press("Escape")
        watched.screenshot(f"report-{page_name}-{name}-{scheme}", whole=True)


def test_on_a_phone_a_frame_is_as_wide_as_the_screen_allows(visit):
    watched = visit("one.html", PHONE)
    page = watched.page
    page.locator(".tiles button").nth(2).click()
    picture = large(page).get_by_role("img").bounding_box()
    assert 0 <= picture["x"] < 30
    assert picture["width"] > 330
    watched.screenshot("report-large-phone")
    page.get_by_role("button", name="Close").click()
    assert not large(page).is_visible()


def test_the_page_holds_what_the_ranking_says(files, ranking):
    text = (files / "one.html").read_text()
    start = text.index('id="document">') + len('id="document">')
    held = json.loads(text[start : text.index("</script>", start)])
    assert held["rankings"][0]["ranks"]["frames"] == ranking.frames.tolist()
