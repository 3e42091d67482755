"""The page in Chromium, by mouse and by keys, at two widths, in both directions, light and dark."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from browser import chromium, until
from servers import Serve, Served
from toy import toy_pairs

pytestmark = pytest.mark.browser

ENGLISH = [english for english, _ in toy_pairs(2, seed=9)]
WIDTHS = (400, 1400)


@pytest.fixture(params=WIDTHS)
def page(request: pytest.FixtureRequest, server: Served) -> Iterator[Any]:
    """The page in a window of that width."""
    with chromium(request.param) as browser:
        browser.get(f"http://127.0.0.1:{server.port}/")
        until(browser, "return document.getElementById('target').value")
        yield browser


def text_of(page: Any, id: str) -> str:
    return page.execute_script("return document.getElementById(arguments[0]).textContent", id)


def typed(page: Any, text: str) -> None:
    """Type a text, and wait for its translation."""
    page.find_element("id", "text").send_keys(text)
    wanted = "one => one.space + one.source"
    until(page, f"return state.sentences.map({wanted}).join('') === {json.dumps(text)}")


def linked(page: Any, box: str) -> list[str]:
    return page.execute_script(
        "return Array.from(document.querySelectorAll(`#${arguments[0]} .linked`), one => one.textContent)", box
    )


def test_it_translates_while_one_types(page: Any, server: Served) -> None:
    from selenium.webdriver.common.keys import Keys  # pyright: ignore[reportMissingImports]

    typed(page, " ".join(ENGLISH))
    assert text_of(page, "output") == " ".join(server.translate(ENGLISH))
    assert text_of(page, "status") == "Translated."
    page.find_element("id", "text").send_keys(Keys.CONTROL, "a", Keys.NULL, Keys.DELETE)
    until(page, "return document.getElementById('output').textContent === ''")


def test_pointing_at_a_word_shows_what_it_translates(page: Any, server: Served) -> None:
    from selenium.webdriver.common.action_chains import ActionChains  # pyright: ignore[reportMissingImports]

    typed(page, ENGLISH[0])
    aligned = page.execute_script("return state.sentences[0].hypotheses[0]")
    src, tgt = aligned["links"][0]
    for box, other, word, place in (("output", "mirror", tgt, 0), ("mirror", "output", src, 1)):
        element = page.find_element("css selector", f"#{box} .word[data-word='{word}']")
        ActionChains(page).move_to_element(element).perform()
        wanted = {pair[place] for pair in aligned["links"] if pair[1 - place] == word}
        assert linked(page, box) == [element.get_property("textContent")]
        words = page.find_elements("css selector", f"#{other} .word")
        assert linked(page, other) == [words[i].get_property("textContent") for i in sorted(wanted)]
    ActionChains(page).move_to_element(page.find_element("tag name", "h1")).perform()
    assert linked(page, "output") == linked(page, "mirror") == []


def test_the_words_behind_the_field_stand_where_its_own_stand(page: Any) -> None:
    typed(page, " ".join(ENGLISH) * 3)
    script = "const one = document.getElementById(arguments[0]); return [one.clientWidth, one.scrollHeight]"
    mirror, field = (page.execute_script(script, name) for name in ("mirror", "text"))
    assert mirror == field


@pytest.mark.parametrize("is_secure", [True, False])
def test_a_translation_is_copied(page: Any, is_secure: bool) -> None:
    """Over plain http, from another machine, browsers have no clipboard for a page."""
    from selenium.webdriver.common.keys import Keys  # pyright: ignore[reportMissingImports]

    typed(page, " ".join(ENGLISH))
    copied = text_of(page, "output")
    if not is_secure:
        page.execute_script("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    page.find_element("id", "copy").click()
    until(page, "return document.getElementById('status').textContent === 'Copied.'")
    page.find_element("id", "text").send_keys(Keys.CONTROL, "av")
    assert page.find_element("id", "text").get_property("value") == copied


def test_the_keys_reach_everything(page: Any) -> None:
    from selenium.webdriver.common.keys import Keys  # pyright: ignore[reportMissingImports]

    typed(page, " ".join(ENGLISH))
    page.find_element("id", "text").send_keys(Keys.TAB)
    reached = []
    for _ in range(8):
        reached.append(page.switch_to.active_element.get_attribute("id"))
        if reached[-1] == "output":
            break
        page.switch_to.active_element.send_keys(Keys.TAB)
    assert {"target", "copy", "output"} <= set(reached)
    output = page.switch_to.active_element
    output.send_keys(Keys.ARROW_RIGHT)
    first = page.execute_script("return document.querySelector('.here').textContent")
    assert text_of(page, "status").startswith(f"{first} translates ")
    output.send_keys(Keys.END, Keys.ENTER)
    assert text_of(page, "chosen") == ENGLISH[1]
    output.send_keys(Keys.TAB)
    alternatives = page.find_elements("css selector", "#alternatives button")
    assert page.switch_to.active_element == alternatives[0]
    other = alternatives[1].text
    alternatives[1].send_keys(Keys.ENTER)
    assert text_of(page, "output").endswith(other)
    look = page.find_element("id", "look")
    look.send_keys(Keys.ENTER)
    until(page, "return document.querySelectorAll('#weights tbody tr').length")
    assert look.get_attribute("aria-expanded") == "true"
    rows = page.find_elements("css selector", "#weights tbody tr")
    sums = [sum(float(cell.text or 0) for cell in row.find_elements("tag name", "td")) for row in rows]
    assert all(abs(one - 1) < 0.1 for one in sums)


def test_a_screen_reader_is_told_the_name_of_everything(page: Any) -> None:
    typed(page, ENGLISH[0])
    tree = page.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    named = {"button", "combobox", "textbox", "group", "region", "status"}
    nodes = [node for node in tree if not node.get("ignored") and node.get("role", {}).get("value") in named]
    nameless = [node["role"]["value"] for node in nodes if not node.get("name", {}).get("value")]
    assert set(nameless) <= {"status"}  # it is read as it changes
    found = {(node["role"]["value"], node["name"]["value"]) for node in nodes if node.get("name")}
    assert {("textbox", "Text to translate"), ("combobox", "From"), ("combobox", "To")} <= found
    assert page.find_element("id", "output").get_attribute("lang") == "es"
    assert page.find_element("tag name", "html").get_attribute("lang") == "en"


def test_nothing_is_wider_than_the_window_and_nothing_is_asked_elsewhere(page: Any, server: Served) -> None:
    typed(page, " ".join(ENGLISH) + " " + "x" * 300)
    page.find_element("css selector", "#output .word").click()
    page.find_element("id", "look").click()
    until(page, "return document.querySelectorAll('#weights td').length")
    assert page.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    asked = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    urls = [one["params"]["request"]["url"] for one in asked if one["method"] == "Network.requestWillBeSent"]
    of_its_first_tab = ("chrome:", "chrome-untrusted:")
    own = (f"http://127.0.0.1:{server.port}/", "data:", "about:", *of_its_first_tab)
    assert [url for url in urls if not url.startswith(own)] == []
    assert [entry for entry in page.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []


@pytest.mark.parametrize("dark", [False, True])
def test_every_text_has_enough_contrast(server: Served, dark: bool) -> None:
    """At least 4.5 to 1, as WCAG 2.1 asks of text (1.4.3)."""
    with chromium(1400, dark=dark) as page:
        page.get(f"http://127.0.0.1:{server.port}/")
        until(page, "return document.getElementById('target').value")
        typed(page, ENGLISH[0])
        page.find_element("css selector", "#output .word").click()
        assert page.execute_script("return document.documentElement.dataset.theme") == ("dark" if dark else "light")
        pairs = [("#output", "#output"), (".quiet", "body"), ("#copy", "#copy"), ("#source", "#source"), ("h1", "body"),
                 ("#alternatives button", "#alternatives button"), ("#output .linked", "#output .linked")]  # fmt: skip
        low = {pair: ratio for pair in pairs if (ratio := contrast(page, *pair)) < 4.5}
        assert low == {}
        page.find_element("id", "theme").click()
        assert page.execute_script("return document.documentElement.dataset.theme") == ("light" if dark else "dark")
        page.refresh()
        assert page.execute_script("return document.documentElement.dataset.theme") == ("light" if dark else "dark")


def test_a_browser_that_forbids_storage_forgets_the_theme_alone(server: Served) -> None:
    forbids = "Object.defineProperty(window, 'localStorage', {get() { throw new DOMException('', 'SecurityError'); }})"
    with chromium(1400) as page:
        page.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": forbids})
        page.get(f"http://127.0.0.1:{server.port}/")
        until(page, "return document.getElementById('target').value")
        page.find_element("id", "theme").click()
        assert page.execute_script("return document.documentElement.dataset.theme") == "dark"
        typed(page, ENGLISH[0])
        assert text_of(page, "output")


def contrast(page: Any, ink: str, ground: str) -> float:
    """The ratio of luminances of an element's colour and another's background."""
    script = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
    colours = [page.execute_script(script, ink, "color"), page.execute_script(script, ground, "backgroundColor")]
    dim, bright = sorted(
        _luminance([int(part) for part in one[one.index("(") + 1 : -1].split(",")[:3]]) for one in colours
    )
    return (bright + 0.05) / (dim + 0.05)


def _luminance(colour: list[int]) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (part / 255 for part in colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_a_language_from_right_to_left_stands_so(serve: Serve, run: Path) -> None:
    """The same model under the name of Arabic: its letters do not matter for where they stand."""
    folder = run.with_name("arabic")
    shutil.copytree(run, folder)
    for path in folder.rglob("config.yaml"):
        mapping = yaml.safe_load(path.read_text())
        mapping["data"]["tgt_lang"] = "ar"
        path.write_text(yaml.safe_dump(mapping))
    server = serve("--workers", "1", runs=(folder,))
    for width in WIDTHS:
        with chromium(width) as page:
            page.get(f"http://127.0.0.1:{server.port}/")
            until(page, "return document.getElementById('target').value")
            typed(page, ENGLISH[0])
            output = page.find_element("id", "output")
            assert output.get_attribute("dir") == "rtl"
            place: Callable[[str], float] = lambda side: page.execute_script(  # noqa: E731
                "return document.querySelector(arguments[0]).getBoundingClientRect()[arguments[1]]", *side.split()
            )
            assert place("#output right") - place("#output>.sentence right") < 20
            assert place("#mirror>.word left") - place("#text left") < 20
            assert page.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")


def test_languages_are_swapped_with_their_texts(serve: Serve, run: Path, backwards: Path) -> None:
    from selenium.webdriver.common.keys import Keys  # pyright: ignore[reportMissingImports]

    server = serve("--workers", "1", runs=(run, backwards))
    with chromium(1400) as page:
        page.get(f"http://127.0.0.1:{server.port}/")
        until(page, "return document.getElementById('target').value")
        typed(page, ENGLISH[0])
        spanish = text_of(page, "output")
        page.find_element("id", "text").send_keys(Keys.ALT, "s")
        until(page, f"return state.sentences[0]?.source === {json.dumps(spanish)}")
        assert [page.find_element("id", id).get_property("value") for id in ("source", "target")] == ["es", "en"]
        back = server.post("/translate", {"q": spanish, "source": "es", "target": "en"}).json["translatedText"]
        assert text_of(page, "output") == back
        assert page.find_element("id", "text").get_property("value") == spanish


def test_what_is_not_translated_back_is_not_swapped(serve: Serve, run: Path, backwards: Path) -> None:
    """A text that is in the target language already: nothing leads from there to itself."""
    server = serve("--workers", "1", runs=(run, backwards))
    with chromium(1400) as page:
        page.get(f"http://127.0.0.1:{server.port}/")
        until(page, "return document.getElementById('target').value")
        page.find_element("css selector", "#source [value=auto]").click()
        page.find_element("css selector", "#target [value=es]").click()
        is_closed = "return document.getElementById('swap').disabled"
        assert not page.execute_script(is_closed)
        typed(page, "uno dos tres.")
        assert page.execute_script(is_closed)
        page.find_element("id", "text").clear()
        typed(page, ENGLISH[0])
        assert not page.execute_script(is_closed)


def test_an_error_of_a_proxy_is_told_by_its_status(page: Any) -> None:
    """What it has to say is a page, and no JSON."""
    page.execute_script("window.fetch = async () => new Response('<html>', { status: 502 })")
    page.find_element("id", "text").send_keys(ENGLISH[0])
    said = "return document.querySelector('#status.wrong')?.textContent"
    assert until(page, said) == "The server answers with 502."


def test_a_key_is_asked_for_and_errors_are_told(serve: Serve) -> None:
    server = serve("--workers", "1", "--api-key", "secret")
    with chromium(1400) as page:
        page.get(f"http://127.0.0.1:{server.port}/")
        until(page, "return document.getElementById('target').value")
        page.find_element("id", "text").send_keys(ENGLISH[0])
        assert until(page, "return document.querySelector('#status.wrong')?.textContent") == "A key is needed."
        page.find_element("id", "key").send_keys("secret\t")
        until(page, "return document.getElementById('output').textContent")
        server.end()
        page.find_element("id", "text").send_keys(" one")
        until(page, "return document.querySelector('#status.wrong')?.textContent === 'The server cannot be reached.'")
