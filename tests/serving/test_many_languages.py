"""A run of several directions is served in each of them, and texts of several languages are translated together."""

import asyncio
from pathlib import Path
from typing import cast

import pytest
from servers import Served as Server
from toy import toy_config, toy_pairs, write_toy_corpus
from translators import SMALL, make_translator, write_run

from transformer_mt import Translator
from transformer_mt.serving.batcher import Batcher
from transformer_mt.serving.detection import Detector
from transformer_mt.serving.refusal import Limits, Refusal
from transformer_mt.serving.service import Request, Served, Service
from transformer_mt.serving.web.libretranslate import known, served_of, translate_from

PAIRS = toy_pairs(120)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With random weights, which translate to one language otherwise than to the other."""
    folder = tmp_path_factory.mktemp("many")
    write_toy_corpus(folder)
    files = {"src": "train.en", "tgt": "train.es"}
    data = {"root": str(folder), "train": [{**files, "tag": "<2es>"}, {**files, "tag": "<2en>", "reverse": True}]}
    tokenizer = {"tags": ["<2es>", "<2en>"]}
    both = [side for src, tgt in PAIRS for side in ((src, tgt), (tgt, src))]
    return write_run(folder / "run", make_translator(SMALL, both, data=data, tokenizer=tokenizer))


def test_each_direction_is_served(run: Path) -> None:
    english, spanish = PAIRS[0]
    translator = Translator.load(run, device="cpu")
    wanted = {to: translator.translate([english, spanish], to=to) for to in ("es", "en")}
    assert wanted["es"] != wanted["en"]
    with Server(run, "--workers", "1") as server:
        assert any("serving en to es, es to en at" in line for line in server.told)
        languages = server.get("/languages").json
        assert {one["code"]: one["targets"] for one in languages} == {"en": ["es"], "es": ["en"]}
        for text, src, to in ((english, "en", "es"), (spanish, "es", "en"), (english, "auto", "es")):
            found = server.post("/translate", {"q": text, "source": src, "target": to}).json
            assert found["translatedText"] == wanted[to][text == spanish]
        html = {"q": f"<b>{english}</b>", "source": "en", "target": "es", "format": "html"}
        assert server.post("/translate", html).json["translatedText"].startswith("<b>")
        (detected,) = server.post("/detect", {"q": [spanish]}).json
        assert detected[0]["language"] == "es"


def test_where_texts_of_one_language_are_refused_nothing_goes_on_for_the_others() -> None:
    left = []

    class OneRefuses:
        by_pair = dict.fromkeys([("fr", "en"), ("es", "en")], object())

        async def translate(self, request: Request) -> None:
            if request.texts == ["non"]:
                raise Refusal(400, "no")
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                left.extend(request.texts)

    async def ask() -> None:
        with pytest.raises(Refusal):
            await translate_from(cast(Service, OneRefuses()), ["si", "non"], ["es", "fr"], "en", "")
        await asyncio.sleep(0)
        assert left == ["si"]

    asyncio.run(ask())


def test_a_language_is_one_however_runs_spell_it(tmp_path: Path) -> None:
    pairs = ("pt_BR", "en"), ("en", "pt-br")
    runs = [
        Served(i, "toy", toy_config(tmp_path, data={"src_lang": src, "tgt_lang": tgt}), None)
        for i, (src, tgt) in enumerate(pairs)
    ]
    words = {"en": ["one", "two"], "pt-br": ["um", "dois"]}
    service = Service(runs, cast(Batcher, None), Limits(), Detector(words))
    assert service.targets == {"pt_BR": ["en"], "en": ["pt_BR"]}
    for code in ("pt_BR", "pt-BR", "pt"):
        assert served_of(service, "en", known(service, code)) is runs[1]
    assert [code for code, _ in service.detect("um dois")] == ["pt_BR", "en"]
    assert service.source_of("um dois", "en")[0] == "pt_BR"
