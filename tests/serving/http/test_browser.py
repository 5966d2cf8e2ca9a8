"""The web page in a real browser, used by mouse and by keyboard."""

import base64
import json
import re
import shutil
import urllib.request
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from onnx import ModelProto

from costmodel.onnx_io.anonymisation import anonymise
from costmodel.paths import Home
from costmodel.serving.http.tokens import add_token
from tests.costmodel.onnx_io.test_anonymisation import filled_model
from tests.proxied import behind_prefix
from tests.served import listening
from tests.synthetic import copied
from tests.zoo import ZOO

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytest.importorskip("playwright", reason="the browser is driven by playwright")
if CHROMIUM is None:
    pytest.skip("no Chromium is installed", allow_module_level=True)
from playwright.sync_api import Browser, Page, expect, sync_playwright  # noqa: E402


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser that all tests share."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def url(trained: Home, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a service without tokens."""
    home = copied(trained, tmp_path_factory.mktemp("page") / "home")
    with pytest.MonkeyPatch.context() as patch, listening(home, patch) as url:
        yield url


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    """The page; fails if it logs an error or requests another host."""
    complaints: list[str] = []
    asked: set[str] = set()
    context = browser.new_context()
    page = context.new_page()
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: asked.add(request.url))
    page.goto(url)
    yield page
    assert [text for text in complaints if "404" not in text and "422" not in text] == []
    assert all(one.startswith((url, "blob:", "data:")) for one in asked)
    context.close()


def test_an_example_is_priced(page: Page) -> None:
    """A click on an example shows latency, interval, operators, layers, a summary, and the equivalent command."""
    page.get_by_role("button", name="ResNet-50").click()
    expect(page.locator("#status")).to_contain_text("ResNet-50:")
    expect(page.locator("#answer")).to_contain_text("90% interval")
    expect(page.locator("#operators")).to_contain_text("Conv")
    assert page.locator("#layers tbody tr").count() == 12
    page.get_by_role("button", name=re.compile("Show all")).click()
    assert page.locator("#layers tbody tr").count() > 12
    expect(page.locator("#trust")).to_contain_text("with a probability of 90%")
    expect(page.locator("#curl")).to_contain_text("/v1/predict")
    assert (
        '"latency_us"' in page.locator("#json").inner_text(timeout=1000) or page.get_by_text("Answer as JSON").count()
    )


def test_the_command_on_the_page_gives_the_answer_on_the_page(page: Page) -> None:
    """The command shown on the page gives the same answer."""
    page.get_by_role("button", name="MobileNet v2").click()
    expect(page.locator("#status")).to_contain_text("MobileNet v2:")
    command = page.locator("#curl").inner_text()
    address = re.search(r"curl (\S+)", command)
    body = re.search(r"-d '(.*)'$", command, re.DOTALL)
    assert address
    assert body
    request = urllib.request.Request(
        address[1], body[1].encode(), headers={"content-type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request) as answer:
        found: dict[str, Any] = json.load(answer)
    page.get_by_text("Answer as JSON").click()
    assert json.loads(page.locator("#json").inner_text()) == found


def test_an_objective_is_met_or_not(page: Page) -> None:
    """The slider's objective is compared with the estimate at once, in words too."""
    page.get_by_role("button", name="BERT").click()
    ranking = page.locator("#ranking")
    expect(ranking).to_contain_text("below the limit")
    slider = page.get_by_role("slider")
    slider.focus()
    slider.press("Home")
    expect(ranking).to_contain_text("above the limit")
    slider.press("End")
    expect(ranking).to_contain_text("below the limit")


_PRIVATE = "(float[rows, 1024] pixels) => (float[rows, 1024] label) { label = MatMul(pixels, weight) }"


@pytest.fixture
def private(parse: Any, tmp_path: Path) -> Path:
    """A file with weights and names that must not leave the browser."""
    model: ModelProto = parse(_PRIVATE, weights={"weight": (1024, 1024)})
    model.graph.node[0].name = "projection"
    model.doc_string = "documentation"
    model.producer_name = "producer"
    path = tmp_path / "confidential.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_weights_and_names_of_a_file_stay_in_the_browser(browser: Browser, url: str, private: Path) -> None:
    """No request contains weights or names; the page shows the names, and saves what was sent."""
    passed: list[bytes] = []
    with behind_prefix(url, "/proxied", passed) as outside:
        page = browser.new_page()
        page.goto(f"{outside}/")
        page.set_input_files("#file", private)
        expect(page.locator("#status")).to_contain_text("confidential:")
        expect(page.locator("#layers")).to_contain_text("projection")
        expect(page.locator("#trust")).to_contain_text("the batch (rows) is symbolic")
        shapes = page.get_by_label("Input shapes")
        shapes.fill("pixels=7,1024")
        shapes.press("Tab")
        expect(page.locator("#trust")).not_to_contain_text("the batch (rows) is symbolic")
        expect(page.locator("#curl")).to_contain_text("[7,1024]")
        shapes.fill("pixels=7,1024,3")
        shapes.press("Tab")
        expect(page.locator("#status")).to_contain_text("input pixels has 2 dimensions")
        page.get_by_text("What exactly is sent?").click()
        with page.expect_download() as saving:
            page.get_by_text("Save what is sent for this file").click()
        saved = saving.value.path().read_bytes()
        page.close()
    model = ModelProto.FromString(private.read_bytes())
    assert saved == anonymise(model).content
    assert any(saved in request for request in passed)
    names = (b"confidential", b"projection", b"rows", b"pixels", b"label", b"weight", b"documentation", b"producer")
    for secret in (*names, model.graph.initializer[0].raw_data[:16]):
        assert not any(secret in request for request in passed), secret


def test_what_is_no_model_is_not_sent(page: Page) -> None:
    """A file that is no model is not sent, and the page says so."""
    page.set_input_files("#file", {"name": "photo.onnx", "mimeType": "", "buffer": b"\xff\xd8\xff\xe0"})
    expect(page.locator("#status")).to_contain_text("photo.onnx is not an ONNX file")


def test_the_browser_sends_what_the_command_line_sends(page: Page, light_models: Mapping[str, Path]) -> None:
    """Page and command line anonymise a model to the same bytes: all operators, real models, all protobuf fields."""
    models = [specimen.model() for specimen in ZOO.values()]
    models += [ModelProto.FromString(path.read_bytes()) for path in light_models.values()]
    models += [filled_model(choice) for choice in range(6)]
    found = page.evaluate(
        """async (models) => {
            const { strip } = await import("/static/strip.js");
            const bytes = async (blob) => btoa(
                Array.from(new Uint8Array(await blob.arrayBuffer()), (byte) => String.fromCharCode(byte)).join(""));
            const decoded = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
            return Promise.all(models.map(async (text) => {
                const { parts, names } = strip(decoded(text));
                return [await bytes(new Blob(parts)), names];
            }));
        }""",
        [base64.b64encode(model.SerializeToString()).decode() for model in models],
    )
    for model, (content, names) in zip(models, found, strict=True):
        expected = anonymise(model)
        assert (base64.b64decode(content), tuple(names)) == (expected.content, expected.names)


def test_the_value_of_an_input_chooses_the_branch(
    browser: Browser, url: str, branches: ModelProto, tmp_path: Path
) -> None:
    """The page asks for the value of a flag, under the name that the file has, and prices the layers of its branch."""
    path = tmp_path / "merged.onnx"
    path.write_bytes(branches.SerializeToString())
    page = browser.new_page()
    page.goto(url)
    page.set_input_files("#file", path)
    values = page.get_by_label("Input values")
    for flag in ("2", "maybe"):
        values.fill(f"cached={flag}")
        values.press("Tab")
        expect(page.locator("#status")).to_contain_text("which cannot be 2" if flag == "2" else "is no value")
    values.fill("cached=true")
    values.press("Tab")
    expect(page.locator("#curl")).to_contain_text('"values":{"n0":1}')
    expect(page.locator("#status")).to_contain_text("merged:")
    expect(page.locator("#trust")).not_to_contain_text("which layers run")
    page.close()


def test_everything_is_reached_by_keyboard(page: Page) -> None:
    """Every control is reached by the Tab key in reading order, with visible focus."""
    expect(page.get_by_role("button", name="ResNet-50")).to_be_visible()  # the examples come after the page
    reached = []
    for _ in range(15):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()"))
    for wanted in ("Skip to content", "Systems", "file", "ResNet-50", "batch", "shapes", "values"):
        assert wanted in reached, reached
    assert page.evaluate("document.activeElement.type") == "checkbox" or "BERT base, 128 tokens" in reached


def test_a_screen_reader_finds_names_and_order(page: Page) -> None:
    """The page has one main heading, no skipped level, and an accessible name for every control and picture."""
    page.get_by_role("button", name="ConvNeXt").click()
    expect(page.locator("#status")).to_contain_text("ConvNeXt tiny:")
    levels = [int(level) for level in page.eval_on_selector_all("h1, h2, h3", "all => all.map(h => h.tagName[1])")]
    assert levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels))
    unnamed = page.eval_on_selector_all(
        "input, select, button",
        "all => all.filter(e => !e.labels?.length && !e.textContent.trim() && !e.ariaLabel).map(e => e.id)",
    )
    assert unnamed == []
    assert page.eval_on_selector_all("svg:not([aria-label])", "all => all.length") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_can_be_read(page: Page, scheme: str) -> None:
    """Text has a contrast of at least 4.5 to 1 in light and dark mode (WCAG AA)."""
    page.emulate_media(color_scheme=scheme)
    page.get_by_role("button", name="ResNet-50").click()
    expect(page.locator("#status")).to_contain_text("ResNet-50:")
    ratio = """(names) => names.map(([ink, paper]) => {
        const style = getComputedStyle(document.documentElement);
        const light = (name) => {
            const hex = style.getPropertyValue(name).trim().slice(1);
            const parts = [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255)
                .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
            return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
        };
        const [a, b] = [light(ink), light(paper)];
        return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    })"""
    pairs = [
        [ink, paper] for ink in ("--ink", "--quiet", "--accent", "--extrapolated") for paper in ("--card", "--paper")
    ]
    for pair, found in zip(pairs, page.evaluate(ratio, pairs), strict=True):
        assert found >= 4.5, (scheme, pair, found)


def test_a_phone_shows_all_of_it(page: Page) -> None:
    """On a phone nothing is wider than the screen, and each bar lies below its label and number."""
    page.set_viewport_size({"width": 360, "height": 740})
    page.get_by_role("button", name="BERT").click()
    expect(page.locator("#status")).to_contain_text("BERT")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    right = "(of) => of.getBoundingClientRect().right"
    bars = page.locator("#results svg").all()
    assert bars
    assert all(bar.evaluate(right) <= 360 - 20 for bar in bars)
    rows = page.locator(".bars").first.evaluate(
        "(of) => [...of.children].map((one) => one.getBoundingClientRect().top)"
    )
    label, bar, number = rows[:3]
    assert number < bar
    assert label < bar


def test_the_second_page_shows_systems(page: Page, url: str) -> None:
    """The systems page shows champions, their accuracy by split, and drift."""
    page.get_by_role("link", name="Systems").click()
    expect(page.get_by_role("heading", name="made.up")).to_be_visible()
    expect(page.locator("#systems")).to_contain_text("Error on new families")
    expect(page.locator("#regressors")).to_contain_text("champion")
    assert page.url == f"{url}/systems"


def test_a_service_with_tokens_asks_for_one(browser: Browser, trained: Home, tmp_path: Path) -> None:
    """The page asks for a token and continues with a valid one, also in the shown command and the API link."""
    home = copied(trained, tmp_path / "home")
    token = add_token(tmp_path / "tokens", "me")
    with pytest.MonkeyPatch.context() as patch, listening(home, patch, tokens=tmp_path / "tokens") as url:
        page = browser.new_page()
        page.goto(url)
        page.get_by_label("This service asks for a token").fill(token)
        page.keyboard.press("Enter")
        expect(page.get_by_role("checkbox", name="made.up")).to_be_checked()
        page.get_by_role("button", name="ResNet-50").click()
        expect(page.locator("#status")).to_contain_text("ResNet-50:")
        expect(page.locator("#curl")).to_contain_text('-H "Authorization: Bearer $COSTMODEL_TOKEN"')
        assert token not in page.content()
        page.get_by_role("link", name="API").click()
        page.wait_for_url("blob:**")
        assert json.loads(page.locator("body").inner_text())["info"]["title"] == "costmodel"
        page.close()


def test_the_link_to_the_api_asks_for_a_token_too(browser: Browser, trained: Home, tmp_path: Path) -> None:
    """On both pages the API link asks for a token if none was given."""
    home = copied(trained, tmp_path / "home")
    token = add_token(tmp_path / "tokens", "me")
    with pytest.MonkeyPatch.context() as patch, listening(home, patch, tokens=tmp_path / "tokens") as url:
        page = browser.new_page()
        page.goto(f"{url}/systems")
        page.get_by_role("link", name="API").click()
        page.get_by_label("This service asks for a token").fill(token)
        page.get_by_role("button", name="Use it").click()
        page.wait_for_url("blob:**")
        page.close()


def test_the_page_works_behind_a_prefix(browser: Browser, url: str, private: Path) -> None:
    """All addresses of the page are relative, so that a proxy may serve it below a prefix."""
    with behind_prefix(url, "/tools/costmodel") as outside:
        asked: set[str] = set()
        failed: list[str] = []
        page = browser.new_page()
        page.on("request", lambda request: asked.add(request.url))
        page.on("response", lambda answer: failed.append(answer.url) if answer.status >= 400 else None)
        page.goto(f"{outside}/")
        page.get_by_role("button", name="ResNet-50").click()
        expect(page.locator("#status")).to_contain_text("ResNet-50:")
        expect(page.locator("#curl")).to_contain_text(f"curl {outside}/v1/predict")
        page.set_input_files("#file", private)
        expect(page.locator("#status")).to_contain_text("confidential:")
        page.get_by_role("link", name="Systems").click()
        expect(page.get_by_role("heading", name="made.up")).to_be_visible()
        assert page.url == f"{outside}/systems"
        page.get_by_role("link", name="costmodel").click()
        expect(page.get_by_role("button", name="ResNet-50")).to_be_visible()
        assert page.url == f"{outside}/"
        page.get_by_role("link", name="API").click()
        page.wait_for_url("blob:**")
        assert all(one.startswith((outside, "blob:")) for one in asked), asked
        assert [
            one for one in failed if "/v1/predict" not in one
        ] == []  # a model that the service does not know yet is a 404
        page.close()
