"""The page in a real browser, in front of a real server."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from regard.training.run.log import Log
from tests.serve.running import KEY, start_server
from tests.serve.translators import hold_requests, make_translators

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
AXE = Path(__file__).parents[2] / "page" / "node_modules" / "axe-core" / "axe.min.js"
HOSTILE = "</script><script>document.title='pwned'</script><img src=x onerror=\"document.title='pwned'\"> & \"' \u202e"
HOSTILE_NAME = "<img src=x onerror=document.title='pwned'>"
PLACES = 8
"""Requests that the server admits at a time."""
VIEWS = ("translate", "text", "pictures", "inside", "training")
DOG = "A dog runs ."


@dataclass
class Visit:
    """An open page, and every complaint of the browser: errors, refused scripts, requests to elsewhere."""

    page: playwright.Page
    address: str
    said: list[str] = field(default_factory=list)

    def go(self, view: str) -> playwright.Page:
        self.page.goto(f"{self.address}/#/{view}")
        self.page.wait_for_selector(".view > :not(.place), .gate")
        return self.page


@dataclass
class Site:
    """A browser in front of a server."""

    browser: playwright.Browser
    address: str
    runs: Path

    def visit(self, address: str | None = None, **options: object) -> Visit:
        page = self.browser.new_page(**options)
        page.set_default_timeout(60_000)
        visit = Visit(page, address or self.address)
        page.on("console", lambda message: visit.said.append(message.text))
        page.on("pageerror", lambda error: visit.said.append(str(error)))
        page.on("request", lambda request: visit.said.append(request.url) if elsewhere(request.url, visit) else None)
        return visit


def elsewhere(url: str, visit: Visit) -> bool:
    return url.startswith("http") and not url.startswith(visit.address)


@pytest.fixture(scope="module")
def browser() -> Iterator[playwright.Browser]:
    with playwright.sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def site(
    browser: playwright.Browser, models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("page")
    served = make_translators(folder) | {name: models[name] for name in ("lm", "mlm", "classify", "tag", "image")}
    options = ["--runs", str(folder / "runs"), "--limit", f"client_requests={PLACES}"]
    with start_server(served, folder, options) as server:
        yield Site(browser, server.address, folder / "runs")


@pytest.fixture
def visit(site: Site) -> Iterator[Visit]:
    visit = site.visit()
    yield visit
    visit.page.close()


def translate(visit: Visit, text: str = DOG) -> playwright.Page:
    page = visit.go("translate")
    page.get_by_label("From").select_option("en")
    page.get_by_label("Text to translate").fill(text)
    page.wait_for_selector(".word")
    return page


def test_translates_while_typing_with_alternatives(visit: Visit) -> None:
    page = visit.go("translate")
    page.get_by_label("Text to translate").press_sequentially(DOG)
    page.wait_for_selector(".word")
    others = page.locator(".alternatives li .text")
    assert others.count() > 1
    assert page.locator(".result").inner_text().strip() == others.first.text_content()
    assert all(
        re.fullmatch(r"(< )?[\d.]+ %", text) for text in page.locator(".alternatives .share").all_text_contents()
    )
    second = others.nth(1).text_content()
    others.nth(1).click()
    assert page.locator(".result").inner_text().strip() == second
    page.get_by_role("button", name="Clear").click()
    assert "while you type" in page.locator(".result").inner_text()
    assert visit.said == []


def test_hovering_over_a_word_marks_its_source(visit: Visit) -> None:
    page = translate(visit, f"{DOG}\n\nThe cat sleeps .")
    page.locator(".result p").nth(2).locator(".word").first.hover()
    marked = page.locator(".behind mark")
    assert marked.count() >= 1
    assert marked.first.text_content() in ("The", "cat", "sleeps", ".")
    assert re.match(r"(< )?[\d.]+ % sure of “.+”, from “.+”", page.locator(".output .about").inner_text())
    assert "Line 3" in page.locator(".alternatives").inner_text()
    page.mouse.move(0, 0)
    assert marked.count() == 0
    assert visit.said == []


def test_swapping_copying_and_a_glossary(site: Site) -> None:
    context = site.browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    visit = Visit(context.new_page(), site.address)
    page = translate(visit)
    page.get_by_role("button", name="Copy").click()
    page.get_by_role("button", name="Copied").wait_for()
    german = page.locator(".result").inner_text().strip()
    assert page.evaluate("navigator.clipboard.readText()") == german
    page.get_by_role("button", name="Add a term").click()
    page.get_by_label("Term 1", exact=True).fill("dog")
    page.get_by_label("Translation 1").fill("Vogel")
    playwright.expect(page.locator(".result")).to_contain_text("Vogel", timeout=60_000)
    german = page.locator(".result").inner_text().strip()
    page.get_by_role("button", name="Remove term 1").click()
    page.get_by_role("button", name="Swap languages").click()
    assert page.get_by_label("From").input_value() == "de"
    assert page.get_by_label("Text to translate").input_value() == german
    page.wait_for_selector(".word")
    context.close()


def test_a_completion_is_streamed(visit: Visit) -> None:
    page = visit.go("text")
    page.get_by_label("Beginning").fill("the ")
    page.evaluate(
        """() => { window.grown = []; new MutationObserver(() => window.grown.push(
        document.querySelector('.written').innerText.length)).observe(document.querySelector('.written'),
        {childList: true, subtree: true}); }"""
    )
    page.get_by_label("Temperature").fill("1.5")
    page.get_by_role("button", name="Generate").click()
    page.get_by_text(re.compile(r"Done: \d+ pieces?\.")).wait_for()
    assert page.locator(".written").inner_text().startswith("the ")
    assert page.evaluate("window.grown.length") >= 1
    assert visit.said == []


def test_blanks_classes_and_labels(visit: Visit) -> None:
    page = visit.go("text")
    page.get_by_role("button", name="Fill in the blank").click()
    page.get_by_label("Text with ___").fill("the man ___ the dog.")
    page.get_by_role("button", name="Fill in", exact=True).click()
    page.locator(".bars li").first.wait_for()
    assert page.locator(".bars li").count() == 5
    page.get_by_role("button", name="Classify").first.click()
    page.get_by_label("Text").fill("a fine day")
    page.locator("form").get_by_role("button", name="Classify").click()
    page.locator(".bars li").nth(1).wait_for()
    assert sorted(page.locator(".bars .name").all_text_contents()) == ["high", "low"]
    page.get_by_role("button", name="Label words").click()
    page.get_by_label("Text").fill("a fine day")
    page.get_by_role("button", name="Label", exact=True).click()
    page.locator(".labels li").nth(2).wait_for()
    assert visit.said == []


def test_drawing_a_digit(visit: Visit) -> None:
    page = visit.go("pictures")
    box = page.locator(".pad canvas").first.bounding_box()
    page.mouse.move(box["x"] + 60, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + 240, steps=4)
    page.mouse.up()
    page.locator(".bars li").nth(1).wait_for()
    assert page.locator(".best").inner_text() in ("0", "1")
    playwright.expect(page.locator(".patches")).to_have_js_property("width", 2, timeout=60_000)
    page.get_by_role("button", name="Clear").click()
    assert page.locator(".bars").count() == 0
    assert visit.said == []


def test_a_file_that_is_no_picture_is_refused_in_words(visit: Visit, tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(b"not a picture")
    page = visit.go("pictures")
    page.locator("input[type=file]").set_input_files(tmp_path / "x.png")
    page.get_by_text("x.png is no picture").wait_for()


def test_attention_card_and_tree(visit: Visit) -> None:
    page = visit.go("inside")
    page.get_by_label("Text").fill(DOG)
    page.get_by_role("button", name="Look").click()
    page.locator(".thumb").first.wait_for()
    assert page.locator(".large h2").inner_text() == "Decoder layer 1, cross-attention, head 1"
    page.locator(".thumb").last.focus()
    page.keyboard.press("ArrowUp")
    assert page.locator(".large h2").inner_text().startswith("Decoder layer 1, self-attention")
    page.locator("canvas.map").hover(position={"x": 5, "y": 5})
    assert re.search(r"% of “.*” → “.*”", page.locator(".large .about").inner_text())
    assert "decoder" in page.locator("pre").first.inner_text()
    assert "Trained with Regard" in page.locator(".markdown").inner_text()
    assert visit.said == []


def test_a_curve_grows_while_a_run_trains(site: Site, visit: Visit) -> None:
    run = site.runs / "live"
    run.mkdir()
    (run / "recipe.yaml").write_text("task: translate\n")
    log = Log(run / "log.jsonl")
    log.write("start", 0, total=100, parameters=5)
    for step in (10, 20):
        log.write("train", step, loss=4.0 - step / 10, rate=1e-3, tokens_per_s=500, seconds=step / 2)
    page = visit.go("training")
    page.get_by_text("20 of 100").wait_for()
    assert page.locator(".figures").get_by_text("Training").count() == 1
    assert page.locator(".figures").get_by_text("40 s").count() == 1, "80 steps at two a second are left"
    log.write("train", 30, loss=0.75, rate=1e-3, tokens_per_s=500, seconds=15.0)
    sample = {"source": HOSTILE, "reference": "b", "output": "c"}
    log.write("valid", 30, loss=0.5, scores={"exact": 12.5}, seconds=15.0, samples=[sample])
    page.get_by_text("30 of 100").wait_for()
    page.locator(".legend").get_by_text("0.75").wait_for()
    assert "0.75 at step 30" in page.locator(".chart .hidden").first.text_content()
    assert page.locator(".samples td").nth(1).text_content() == HOSTILE
    page.get_by_role("checkbox", name="en-de").check()
    page.locator(".legend").get_by_text("en-de, training").wait_for()
    with page.expect_popup() as opened:
        page.get_by_role("link", name="Report").first.click()
    assert opened.value.locator("h1").count() == 1
    assert visit.said == []


def test_hostile_texts_and_names_run_nothing(site: Site, visit: Visit) -> None:
    run = site.runs / HOSTILE_NAME
    run.mkdir()
    (run / "recipe.yaml").write_text("task: lm\n")
    Log(run / "log.jsonl").write("train", 1, loss=1.0)
    page = translate(visit, HOSTILE)
    page.wait_for_timeout(300)
    assert (page.title(), page.locator("main img").count()) == ("Translate · Regard", 0)
    page = visit.go("text")
    page.get_by_label("Beginning").fill(HOSTILE)
    page.get_by_role("button", name="Generate").click()
    page.get_by_text(re.compile(r"Done: \d+ pieces?\.|did not work")).first.wait_for()
    page = visit.go("training")
    page.locator(".runs").get_by_text(HOSTILE_NAME).wait_for()
    page.get_by_role("checkbox", name=HOSTILE_NAME).check()
    page.locator(".figures").get_by_text(HOSTILE_NAME).wait_for()
    assert (page.title(), page.locator("main img").count()) == ("Training · Regard", 0)
    shutil.rmtree(run)
    assert visit.said == []


def test_a_busy_server_is_asked_again(site: Site, visit: Visit) -> None:
    page = visit.go("translate")
    with hold_requests(site.address, PLACES):
        time.sleep(0.2)
        page.get_by_label("Text to translate").fill(DOG)
        notice = page.locator(".notice.clock")
        notice.wait_for()
        assert "The server is busy" in notice.inner_text()
        assert f"{PLACES} requests at a time" in notice.inner_text()
    page.wait_for_selector(".word")
    assert notice.count() == 0
    assert all("429" in line for line in visit.said)


def test_a_server_that_is_gone_is_named(visit: Visit) -> None:
    page = visit.go("translate")
    page.context.set_offline(True)
    page.get_by_label("Text to translate").fill(DOG)
    page.get_by_text("The server does not answer").wait_for()
    page.context.set_offline(False)
    page.get_by_role("button", name="Try again").click()
    page.wait_for_selector(".word")


def test_a_key_is_asked_for(site: Site, tmp_path: Path) -> None:
    with start_server({}, tmp_path, ["--runs", str(site.runs)], keys=[KEY]) as server:
        page = site.visit(server.address).go("training")
        for wrong in ("wrong", "ü"):
            page.get_by_label("API key").fill(wrong)
            page.get_by_role("button", name="Continue").click()
            page.get_by_text("does not know this key").wait_for()
        page.get_by_label("API key").fill(KEY)
        page.keyboard.press("Enter")
        page.locator(".runs").get_by_text("en-de").wait_for()
        assert page.locator("nav a").all_text_contents() == ["Training"]
        page.get_by_role("checkbox", name="en-de").check()
        with page.expect_download() as saved:
            page.get_by_role("button", name="Save report").first.click()
        assert saved.value.suggested_filename.endswith(".html")
        page.goto(f"{server.address}/#/pictures")
        page.get_by_text("Nothing is served for “Pictures”").wait_for()
        page.close()


def test_everything_by_keyboard(visit: Visit) -> None:
    page = visit.go("translate")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.innerText") == "Skip to content"
    page.keyboard.press("Enter")
    for _ in range(10):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") == "TEXTAREA":
            break
    page.keyboard.type(DOG)
    page.wait_for_selector(".word")
    for _ in range(5):
        page.keyboard.press("Tab")
        if "word" in page.evaluate("document.activeElement.className"):
            break
    first = page.locator(".output .about").inner_text()
    page.keyboard.press("ArrowRight")
    assert "sure of" in first
    assert page.locator(".output .about").inner_text() != first
    page.keyboard.press("Tab")
    assert "Copy" in page.evaluate("document.activeElement.innerText")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
    page = visit.go("pictures")
    page.locator(".pad canvas").first.focus()
    for key in ("Space", "ArrowDown", "ArrowDown", "ArrowRight", "Space"):
        page.keyboard.press(key)
    page.locator(".bars li").first.wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_serious_fault_and_no_sideways_scroll(site: Site, scheme: str) -> None:
    """axe-core on every view; and at the width of a phone nothing is wider than the screen."""
    if not AXE.is_file():
        pytest.skip("axe-core is not installed; run `make page`")
    visit = site.visit(color_scheme=scheme, viewport={"width": 375, "height": 700}, bypass_csp=True)
    for view in VIEWS:
        page = translate(visit) if view == "translate" else visit.go(view)
        if view == "inside":
            page.get_by_label("Text").fill(DOG)
            page.get_by_role("button", name="Look").click()
            page.locator(".thumb").first.wait_for()
        if view == "training":
            page.locator(".chart").first.wait_for()
        for width in (375, 1200):
            page.set_viewport_size({"width": width, "height": 700})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, view
            page.add_script_tag(path=AXE)
            found = page.evaluate("axe.run({resultTypes: ['violations']})")
            serious = [each for each in found["violations"] if each["impact"] in ("serious", "critical")]
            assert not serious, (view, width, [(each["id"], each["nodes"][0]["html"]) for each in serious])
    visit.page.close()
