"""The page's files: whole, and of this server alone."""

import json
import re
from pathlib import Path
from typing import cast

import pytest
from servers import Serve, Served
from toy import toy_config, toy_pairs
from translators import SMALL, make_translator, write_run

from transformer_mt import Translator
from transformer_mt.decoding.search.options import search_options
from transformer_mt.serving import search_process, service
from transformer_mt.serving.batcher import Batcher
from transformer_mt.serving.chosen import Chosen
from transformer_mt.serving.detection import Detector
from transformer_mt.serving.refusal import Limits, Refusal
from transformer_mt.serving.search_process import Setup
from transformer_mt.storage.run_folder import RunFolder

pytest.importorskip("starlette", reason="tmt serve needs the extra serve")
from transformer_mt.serving.web.page import FILES, FOLDER, NUM_ALTERNATIVES

TEXT = " ".join(english for english, _ in toy_pairs(2, seed=9))


def test_the_page_asks_no_other_host(server: Served) -> None:
    assert {path.name for path in FOLDER.iterdir()} == {name for name, _ in FILES.values()}
    for path, (name, kind) in FILES.items():
        answer = server.get(path)
        assert answer.body == (FOLDER / name).read_bytes()
        assert answer.headers["content-type"] == f"{kind}; charset=utf-8"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert not re.search(r"https?:|//\w+\.\w+/|@import|url\(", answer.body.decode())


def test_sentences_come_with_their_alternatives_and_the_places_of_words(server: Served, translator: Translator) -> None:
    answer = server.post("/page/translate", {"q": f" {TEXT}\n", "source": "auto", "target": "es"}).json
    assert answer["source"] == "en"
    assert "".join(one["space"] + one["source"] for one in answer["sentences"]) + answer["space"] == f" {TEXT}\n"
    for one in answer["sentences"]:
        (line,) = translator.translate_lines([one["source"]], search_options(translator.config.decoding, n_best=4))
        assert [h["text"] for h in one["hypotheses"]] == [h.text for h in line.hypotheses]
        best = one["hypotheses"][0]
        words = [[text[a:b] for a, b in places] for text, places in
                 ((one["source"], best["src_words"]), (best["text"], best["tgt_words"]))]  # fmt: skip
        assert [" ".join(side) for side in words] == [re.sub(r"(?=\.)", " ", t) for t in (one["source"], best["text"])]
        assert all(i < len(words[0]) and j < len(words[1]) for i, j in best["links"])


def test_a_search_that_finds_fewer_shows_what_it_finds(serve: Serve) -> None:
    server = serve("--workers", "1", "--beam-size", "1")
    found = server.post("/page/translate", {"q": TEXT, "source": "en", "target": "es"})
    assert found.status == 200, found
    assert [len(one["hypotheses"]) for one in found.json["sentences"]] == [1, 1]


def test_of_three_candidates_three_are_asked_for(tmp_path: Path) -> None:
    search = {"mbr": "chrf", "mbr_candidates": 3}
    direction = service.Served(0, "toy", toy_config(tmp_path), None, decoding=search)
    asked = service.Service([direction], cast(Batcher, None), Limits(), None)
    assert asked.largest_kind(direction, NUM_ALTERNATIVES).options.n_best == 3
    with pytest.raises(Refusal, match=r"This server finds 3 translations of a text at most, and 4 are asked for"):
        asked.kind(direction, 4)


def test_languages_without_a_known_word_cannot_be_told(tmp_path: Path) -> None:
    direction = service.Served(0, "toy", toy_config(tmp_path), None)
    symbols = Detector({"en": ["+", "="], "es": ["-", "%"]})
    asked = service.Service([direction], cast(Batcher, None), Limits(), symbols)
    with pytest.raises(Refusal, match="knows no words of these languages: name the source language"):
        asked.source_of("one", "es")


@pytest.mark.parametrize("search", [{"temperature": 1.0}, {"glossary": "terms.tsv"}])
def test_the_constraints_of_a_config_are_left_out(
    tmp_path: Path, search: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No request has any; samples are refused beside them, and a glossary beside those in order."""
    monkeypatch.chdir(tmp_path)
    Path("terms.tsv").write_text("one\tuno\n")
    made = make_translator({"num_encoder_layers": 1, **SMALL}, decoding={"constraints": "ordered"})
    assert service.options_of(service.Served(0, "toy", made.config, None, decoding=search)).constraints is None
    (loaded,) = search_process._load(Setup([Chosen.of(RunFolder(write_run(tmp_path / "run", made)))], decoding=search))
    assert loaded.config.decoding.constraints == "ordered"


def test_the_server_need_not_write_millions_of_weights(translator: Translator) -> None:
    """It would answer nobody meanwhile. The process that computes them does."""
    found = search_process.WORKS["look"](translator, "one two three.", "uno tres dos.", None)
    assert isinstance(found, bytes)
    assert [one["name"] for one in json.loads(found)] == ["encoder", "decoder", "cross"]


def test_attention_is_a_distribution_over_words(server: Served) -> None:
    values = {"q": "one two three.", "translation": "uno tres dos.", "source": "en", "target": "es"}
    found = server.post("/page/attention", values).json["attentions"]
    assert [one["name"] for one in found] == ["encoder", "decoder", "cross"]
    for one in found:
        for row in (row for layer in one["weights"] for head in layer for row in head):
            assert len(row) == len(one["keys"])
            assert abs(sum(row) - 1) < 0.001 * len(row)


def test_what_cannot_be_shown_is_refused(server: Served) -> None:
    values = {"q": "one " * 200, "translation": "uno", "source": "en", "target": "es"}
    assert "Give a shorter" in server.post("/page/attention", values).json["error"]
    assert server.post("/page/attention", {**values, "q": ""}).status == 400
    for name, path in (("q", "/page/translate"), ("q", "/page/attention"), ("translation", "/page/attention")):
        for several in ([], ["one", "two"]):
            answer = server.post(path, {**values, "q": "one", name: several})
            assert (answer.status, answer.json["error"]) == (400, f"Invalid request: {name} is a list. Give one text.")
