"""Clients of both APIs that nobody here wrote."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from servers import Serve, Served
from toy import toy_pairs

from transformer_mt import Translator

pytestmark = pytest.mark.clients

KEY = "secret-key"
SENTENCES = [english for english, _ in toy_pairs(5, seed=10)]


@pytest.fixture(scope="module")
def keyed(run: Path) -> Any:
    """A server that asks for a key."""
    with Served(run, "--workers", "1", "--api-key", KEY) as server:
        yield server


@pytest.fixture(scope="module")
def wanted(translator: Translator) -> list[str]:
    return translator.translate(SENTENCES)


def url_of(server: Served) -> str:
    return f"http://127.0.0.1:{server.port}/"


def test_libretranslatepy(keyed: Served, wanted: list[str]) -> None:
    api = pytest.importorskip("libretranslatepy").LibreTranslateAPI(url_of(keyed), KEY)
    assert [api.translate(sentence, "en", "es") for sentence in SENTENCES] == wanted
    assert api.translate(SENTENCES[0], "auto", "es") == wanted[0]
    assert api.detect("one two three")[0]["language"] == "en"
    assert [one["code"] for one in api.languages()] == ["en", "es"]


def test_deep_translator_of_libretranslate(keyed: Served, wanted: list[str]) -> None:
    library = pytest.importorskip("deep_translator")
    ours = {"source": "en", "target": "es", "custom_url": url_of(keyed)}
    client = library.LibreTranslator(api_key=KEY, **ours)
    assert client.translate(SENTENCES[0]) == wanted[0]
    assert client.translate_batch(SENTENCES) == wanted
    with pytest.raises(library.exceptions.AuthorizationException):
        library.LibreTranslator(api_key="other", **ours).translate("one")


def test_deep_translator_of_deepl(keyed: Served, wanted: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    library = pytest.importorskip("deep_translator")
    monkeypatch.setitem(library.deepl.BASE_URLS, "DEEPL", url_of(keyed) + "{version}/")
    client = library.DeeplTranslator(source="en", target="es", api_key=KEY, use_free_api=False)
    assert client.translate_batch(SENTENCES) == wanted
    with pytest.raises(library.exceptions.AuthorizationException):
        library.DeeplTranslator(source="en", target="es", api_key="other", use_free_api=False).translate("one")


def test_deepl(keyed: Served, wanted: list[str]) -> None:
    deepl = pytest.importorskip("deepl")
    client = deepl.DeepLClient(KEY, server_url=url_of(keyed).rstrip("/"))
    found = client.translate_text(SENTENCES, target_lang="ES")
    assert [one.text for one in found] == wanted
    assert {one.detected_source_lang for one in found} == {"EN"}
    assert [one.billed_characters for one in found] == list(map(len, SENTENCES))
    one = client.translate_text(SENTENCES[0], source_lang="EN", target_lang="ES", formality="prefer_less", context="x")
    assert one.text == wanted[0]
    html = client.translate_text(f"<p>{SENTENCES[0]}</p>", target_lang="ES", tag_handling="html")
    assert html.text == f"<p>{wanted[0]}</p>"
    assert [language.code for language in client.get_source_languages()] == ["EN"]
    assert [language.code for language in client.get_target_languages()] == ["ES"]
    assert client.get_usage().character.count > sum(map(len, SENTENCES))
    with pytest.raises(deepl.DeepLException, match="'target_lang' not supported"):
        client.translate_text("one", target_lang="DE")
    with pytest.raises(deepl.AuthorizationException):
        deepl.DeepLClient("other", server_url=url_of(keyed).rstrip("/")).get_usage()


def test_deepl_is_told_to_wait(serve: Serve) -> None:
    deepl = pytest.importorskip("deepl")
    server = serve("--workers", "1", "--max-chars", "10")
    client = deepl.DeepLClient("any", server_url=url_of(server).rstrip("/"))
    with pytest.raises(deepl.DeepLException, match="Send less"):
        client.translate_text("one two three", target_lang="ES")


SCRIPT = """
const library = require("libretranslate-ts");
const client = library.libreTranslate;
const { url, key, sentences } = JSON.parse(process.argv[1]);
client.setApiEndpoint(url);
client.setApiKey(key);
(async () => {
  const found = [];
  for (const one of sentences) found.push(await client.translate(one, "en", "es"));
  const list = await client.listLanguages();
  const language = await client.detect("one two three");
  console.log(JSON.stringify({ found, list, language }));
})();
"""


def test_libretranslate_ts(keyed: Served, wanted: list[str]) -> None:
    folder, node = os.environ.get("TMT_TEST_NODE"), shutil.which("node")
    if folder is None or node is None:
        pytest.skip("node, and a folder in TMT_TEST_NODE with libretranslate-ts, are needed")
    given = json.dumps({"url": url_of(keyed).rstrip("/"), "key": KEY, "sentences": SENTENCES})
    done = subprocess.run([node, "-e", SCRIPT, given], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert [(one["status"], one["translatedText"]) for one in answer["found"]] == [(200, text) for text in wanted]
    assert [one["code"] for one in answer["list"]] == ["en", "es"]
    assert (answer["language"]["status"], answer["language"]["language"]) == (200, "en")
