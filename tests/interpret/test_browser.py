"""The page in a real browser: heads, hover, keyboard, dark mode, hostile text, long inputs, patches, hops."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard.conversion.convert import convert
from regard.data.stories import parse_story
from regard.decode import Search
from regard.engine.torch_engine import TorchEngine
from regard.families import bert, memn2n, vit
from regard.interpret.look_page import render_page
from regard.interpret.view import look_at
from regard.tasks.babi import Babi, BabiData
from regard.tasks.common.forward_pass import ForwardPass
from regard.tasks.common.task import Dataset
from regard.tasks.image import Image as ImageTask
from regard.tasks.image import ImageData
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


def test_a_long_input_is_read_by_tiles(browser: playwright.Browser, tmp_path: Path) -> None:
    """130 tokens are 4 × 4 tiles of 40; keys and mouse choose one, whose weights are those of the model."""
    net = bert.spec(width=16, depth=1, heads=1, hidden=16, vocab=150, length=130).build(seed=1).eval()
    read = ForwardPass.of(net, list(range(10, 140)), [-100] * 130)
    view = look_at(net, read, text="long", output="", title="long", names=[str(i) for i in range(150)])
    (tmp_path / "p.html").write_text(render_page([view]), encoding="utf-8")
    page, said = visit(browser, tmp_path / "p.html")
    tiles, note, tip = page.locator("canvas.tiles"), page.locator(".head .scroll .note"), page.locator(".tip")
    assert tiles.get_attribute("aria-label").startswith("4 by 4 tiles of 40 by 40 weights")
    assert note.text_content().startswith("Rows 1 to 40, columns 1 to 40 of 130 × 130")
    tiles.focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    assert note.text_content().startswith("Rows 41 to 80, columns 81 to 120 of 130 × 130")
    page.locator("canvas.map").focus()
    page.keyboard.press("ArrowDown")
    weight = float(view.layers[0].weights[0, 41, 80])
    assert tip.text_content() == f"{view.target[41]} → {view.target[80]}: {weight:.3f}"
    box = tiles.bounding_box()
    tiles.click(position={"x": box["width"] - 3, "y": box["height"] - 3})
    assert note.text_content().startswith("Rows 121 to 130, columns 121 to 130 of 130 × 130")
    assert said == []


def test_patches_over_the_picture(browser: playwright.Browser, tmp_path: Path) -> None:
    """A click or a key chooses the patch that looks; what it looks at most is said, and the picture lies below."""
    spec = vit.spec(image=12, patch=4, width=16, depth=1, heads=2, hidden=16, classes=2, channels=3)
    task = ImageTask(ImageData(), ("cat", "dog"), 12, (0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
    model = regard.Model(TorchEngine(spec.build(seed=1).eval()), task, Search(), tmp_path / "vit")
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (12, 12, 3), np.uint8)).save(tmp_path / "image.png")
    seen = regard.look(model, str(tmp_path / "image.png"))
    seen.save(tmp_path / "p.html")
    page, said = visit(browser, tmp_path / "p.html")
    weights, labels = seen.views[0].layers[0].weights[0], seen.views[0].target
    patches, tip = page.locator("canvas.patches"), page.locator(".tip")
    size = "(e) => [e.getBoundingClientRect().width, e.getBoundingClientRect().height]"
    assert patches.evaluate(size) == page.locator(".picture img").evaluate(size) == [420, 420]
    assert page.locator(".picture img").evaluate("(e) => e.naturalWidth") == 12

    def told(row: int) -> str:
        best = int(weights[row].argmax())
        who = "class token" if row == 0 else f"patch {labels[row]}"
        whom = "the class token" if best == 0 else f"patch {labels[best]}"
        return f"{who} looks most at {whom}: {weights[row, best]:.3f}"

    assert tip.text_content().startswith(told(0))
    patches.click(position={"x": 210, "y": 350})  # the third row, the second column
    assert tip.text_content().startswith(told(8))
    mark = page.locator(".picture .patch").evaluate("(e) => [e.style.left, e.style.top]")
    assert mark == ["140px", "280px"]
    page.keyboard.press("ArrowUp")
    assert tip.text_content().startswith(told(5))
    page.get_by_role("button", name="from the class token").click()
    assert tip.text_content().startswith(told(0))
    assert said == []


def test_hops_are_lines_to_sentences(browser: playwright.Browser, tmp_path: Path) -> None:
    story = parse_story("Mary went home. John went out. Where is Mary?")
    task = Babi.prepare(BabiData(memory=5), Dataset([dataclasses.replace(story, answer="home")], [], "", {}))
    net = memn2n.spec(width=8, memory=5, vocab=len(task.classes)).build(seed=1).eval()
    seen = regard.look(regard.Model(TorchEngine(net), task, Search(), tmp_path / "memn2n"), str(story))
    seen.save(tmp_path / "p.html")
    page, said = visit(browser, tmp_path / "p.html")
    assert page.locator("#look h2").first.text_content() == "encoder, hops"
    page.get_by_role("button", name="hop 2").hover()
    best = seen.views[0].hops[1]
    assert page.locator(".tip").text_content().startswith(f"hop 2 → {best.sentence} {best.weight:.2f}")
    assert said == []


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
