"""The page in a real browser: heads, hover, keyboard, dark mode, hostile text, a long input."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import regard
from regard.conversion.convert import convert
from regard.families import bert
from regard.interpret.look_page import render_page
from regard.interpret.view import look_at
from regard.tasks.common.forward_pass import ForwardPass
from tests.conversion.test_convert import folder

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
HOSTILE = "</script><script>document.title='pwned'</script><img src=x onerror=\"document.title='pwned'\"> & \"' \u202e"


@pytest.fixture(scope="module")
def browser() -> Iterator[playwright.Browser]:
    with playwright.sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("look")
    convert(str(folder("marian", place / "theirs")), str(place / "ours"))
    return place / "ours"


def visit(browser: playwright.Browser, path: Path, **options: object) -> tuple[playwright.Page, list[str]]:
    """The open page, and every complaint of the browser: errors, refused scripts, requests."""
    page = browser.new_page(**options)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: said.append(request.url) if request.url.startswith("http") else None)
    page.goto(path.as_uri())
    return page, said


def test_heads_words_and_lines(browser: playwright.Browser, translator: Path, tmp_path: Path) -> None:
    regard.look(translator, "a cab bad", "abba cd", against="a dad bad").save(tmp_path / "p.html")
    page, said = visit(browser, tmp_path / "p.html")
    assert page.locator("#look h2").first.text_content().endswith("cross-attention, head 1")
    page.locator(".thumb").first.click()
    assert page.locator("#look h2").first.text_content() == "encoder layer 1, self-attention, head 1"
    page.keyboard.press("ArrowRight")
    assert page.locator("#look h2").first.text_content() == "encoder layer 1, self-attention, head 2"
    page.keyboard.press("ArrowDown")
    assert page.locator("#look h2").first.text_content() == "encoder layer 2, self-attention, head 2"
    page.locator("canvas.map").hover(position={"x": 5, "y": 5})
    assert "→" in page.locator(".tip").text_content()
    page.locator("canvas.map").focus()
    page.keyboard.press("ArrowRight")
    assert "→" in page.locator(".tip").text_content()
    page.get_by_role("button", name="Lines").click()
    assert page.locator(".lines line").count() > 0
    page.locator(".lines .side button").first.hover()
    assert page.locator(".lines .side .on").count() == 1
    page.get_by_role("button", name="Tokens").click()
    page.get_by_role("button", name="a dad bad").click()
    assert "a dad bad" in page.locator(".lead").text_content()
    assert page.get_by_text("Where the two inputs part").count() == 1
    assert said == []


def test_hostile_text_runs_nothing(browser: playwright.Browser, translator: Path, tmp_path: Path) -> None:
    regard.look(translator, HOSTILE, "abba").save(tmp_path / "p.html")
    page, said = visit(browser, tmp_path / "p.html")
    assert page.title() == "ours"
    assert HOSTILE.partition("\u202e")[0].strip() in page.locator(".lead").text_content()
    assert page.locator("img").count() == 0
    assert said == []


def test_dark_mode_has_dark_paper_and_light_ink(browser: playwright.Browser, translator: Path, tmp_path: Path) -> None:
    regard.look(translator, "a cab", "abba").save(tmp_path / "p.html")
    colors = []
    for scheme in ("light", "dark"):
        page, _ = visit(browser, tmp_path / "p.html", color_scheme=scheme)
        colors.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert colors == ["rgb(255, 255, 255)", "rgb(20, 23, 28)"]


def test_a_phone_does_not_scroll_sideways(browser: playwright.Browser, translator: Path, tmp_path: Path) -> None:
    regard.look(translator, "a cab", "abba").save(tmp_path / "p.html")
    page, _ = visit(browser, tmp_path / "p.html", viewport={"width": 375, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_512_tokens_in_12_by_12_heads(browser: playwright.Browser, tmp_path: Path) -> None:
    """A page of at most 5 MB that is drawn quickly."""
    net = bert.spec(width=48, depth=12, heads=12, hidden=24, vocab=11, length=512).build(seed=1).eval()
    ids = torch.randint(3, 11, (512,), generator=torch.Generator().manual_seed(1)).tolist()
    read = ForwardPass.of(net, ids, [-100] * 512)
    html = render_page([look_at(net, read, text="long", output="", title="long", names=list("abcdefghijk"))])
    (tmp_path / "p.html").write_text(html, encoding="utf-8")
    assert len(html) <= 5_000_000
    began = time.monotonic()
    page, said = visit(browser, tmp_path / "p.html")
    assert page.locator(".thumb").count() == 144
    assert time.monotonic() - began < 30, "hung"
    page.locator(".thumb").nth(77).click()
    assert "largest weights of each row" in page.locator("#look .head").text_content()
    assert said == []
