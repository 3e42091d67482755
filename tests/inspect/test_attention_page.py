"""The page and the pictures: the model's own weights, the sentence as text whatever it holds, for every preset."""

import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from marks import slow

from transformer_mt.config.presets import MODELS
from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.config.sections.tokenizer import TokenizerConfig
from transformer_mt.data.make_tokenizers import train_tokenizer
from transformer_mt.data.tokenizers import Tokenizer, normalize
from transformer_mt.data.word_splitting import join_words
from transformer_mt.errors import UserError
from transformer_mt.inspect.attention import Attention, pair_attention, recorded_attention
from transformer_mt.inspect.attention_page import TEMPLATE, attention_page
from transformer_mt.inspect.pictures import num_files, write_pictures
from transformer_mt.model.architectures import ARCHITECTURES
from transformer_mt.model.interface import TranslationModel

TINY = {"d_model": 16, "d_ff": 16, "num_heads": 4, "num_decoder_layers": 2, "max_len": 64, "dropout": 0.0}
HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!-- <b>bold</b> &amp; &lt; 'single' \"double\" `${x}` \\u003c \\",
    "]]> @DATA@ \x00 \x07 \u200f \u202e abc \ufeff",
    "القطة <b>جلست</b> 猫坐在垫子上 </s> <s> <unk>",
]


class Page(HTMLParser):
    """What a browser sees: the tags and their attributes, and what stands in each script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, list]] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.append((tag, attrs))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "script" and data.strip():
            self.scripts.append(data)


def make_model(tokenizer: Tokenizer, preset: str = "modern", **options) -> TranslationModel:
    torch.manual_seed(0)
    layers = {} if MODELS[preset]["architecture"] == "decoder_only" else {"num_encoder_layers": 3}
    kv_heads = {"num_kv_heads": 2} if MODELS[preset]["num_kv_heads"] else {}
    tiny = TINY
    if MODELS[preset]["architecture"] == "encoder_only":
        tiny = {**TINY, "num_decoder_layers": 0}
    if MODELS[preset]["architecture"] == "rnn":
        tiny = {key: value for key, value in TINY.items() if key not in ("d_ff", "num_heads")}
    config = ModelConfig(**{**MODELS[preset], **tiny, **layers, **kv_heads, **options})
    return ARCHITECTURES[config.architecture](config, tokenizer.vocab_size, tokenizer.vocab_size).eval()


def attend(src: str, tgt: str, preset: str = "modern") -> tuple[list[Attention], Tokenizer]:
    tokenizer = train_tokenizer([src, tgt], TokenizerConfig(kind="word", vocab_size=200, min_frequency=1))
    model = make_model(tokenizer, preset)
    return pair_attention(model, tokenizer.encode(src), tokenizer.encode(tgt), tokenizer, tokenizer), tokenizer


def test_the_page_holds_the_weights_of_the_model() -> None:
    src, tgt = "the cat sat .", "el gato se sentó aquí ."
    tokenizer = train_tokenizer([src, tgt], TokenizerConfig(kind="word", vocab_size=200, min_frequency=1))
    model = make_model(tokenizer)
    src_ids, tgt_ids = tokenizer.encode(src), tokenizer.encode(tgt)
    page = attention_page(pair_attention(model, src_ids, tgt_ids, tokenizer, tokenizer), "a model")
    data = json.loads(Page(page).scripts[0])
    with recorded_attention(model) as recorded:
        model(torch.tensor([[*src_ids, 3]]), torch.tensor([[2, *tgt_ids]]))
    modules = {"encoder": "encoder.layers.{}.self_attn", "decoder": "decoder.layers.{}.self_attn",
               "cross": "decoder.layers.{}.cross_attn"}  # fmt: skip
    assert [one["name"] for one in data["attentions"]] == list(modules)
    assert sum(len(one["weights"]) for one in data["attentions"]) == len(recorded) == 3 + 2 + 2
    for one in data["attentions"]:
        for layer, heads in enumerate(one["weights"]):
            weights = torch.tensor(heads)
            torch.testing.assert_close(
                weights, recorded[modules[one["name"]].format(layer)][0], atol=0.51e-4, rtol=0, check_dtype=False
            )
            assert weights.shape == (4, len(one["queries"]), len(one["keys"]))
            assert (weights.sum(-1) - 1).abs().max() < 0.51e-4 * len(one["keys"])
    encoder, decoder, cross = data["attentions"]
    src_words, tgt_words = src.split(), tgt.split()
    assert encoder["queries"] == encoder["keys"] == cross["keys"] == [*src_words, "</s>"]
    assert decoder["queries"] == decoder["keys"] == ["<s>", *tgt_words]
    assert cross["queries"] == [*tgt_words, "</s>"], "a row of cross-attention is named by the word that it chooses"


# Pictures of the source have a test of their own, in tests/cli/translating/test_translate_image.py.
@pytest.mark.parametrize(
    "preset",
    [
        name if name in {"transformer-base", "rnn-small", "llama", "bert-small"} else slow(name)
        for name, model in MODELS.items()
        if model["patches"] is None
    ],
)
def test_every_preset_gives_a_page_and_pictures(preset: str, tmp_path: Path) -> None:
    src, tgt = "one two three four.", "uno dos tres."
    attentions, tokenizer = attend(src, tgt, preset)
    words = [tokenizer.tokens(tokenizer.encode(text)) for text in (src, tgt)]
    if MODELS[preset]["architecture"] == "decoder_only":
        (stream,) = attentions
        assert stream.query_words == stream.key_words == [*words[0], "</s>", "<s>", *words[1]]
        assert stream.num_src == len(words[0]) + 1
        expected = {f"stream_layer_{layer}.png" for layer in (0, 1)}
        assert (stream.weights.triu(1) == 0).all()
    elif MODELS[preset]["architecture"] == "encoder_only":
        (encoder,) = attentions
        assert encoder.query_words == encoder.key_words == [*words[0], "</s>"]
        expected = {f"encoder_layer_{layer}.png" for layer in (0, 1, 2)}
    elif MODELS[preset]["architecture"] == "rnn":
        (cross,) = attentions
        assert (cross.key_words, cross.query_words) == ([*words[0], "</s>"], [*words[1], "</s>"])
        expected = {"cross_layer_0.png"}
    else:
        expected = {f"encoder_layer_{layer}.png" for layer in (0, 1, 2)}
        expected |= {f"{name}_layer_{layer}.png" for name in ("decoder", "cross") for layer in (0, 1)}
    for attention in attentions:
        torch.testing.assert_close(attention.weights.sum(-1), torch.ones(attention.weights.shape[:-1]))
    written = list(write_pictures(tmp_path / "new" / "folder", attentions, preset))
    assert len(written) == num_files(attentions)
    assert {path.name for path in written} == {"attention.html", *expected}
    assert {path.name for path in (tmp_path / "new" / "folder").iterdir()} == {path.name for path in written}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written if path.suffix == ".png")


@pytest.mark.parametrize("sentence", HOSTILE)
def test_hostile_sentences_are_text(sentence: str) -> None:
    harmless = Page(attention_page(attend("a b", "c")[0], "a model"))
    for kind in ("word", "bpe"):
        tokenizer = train_tokenizer([sentence], TokenizerConfig(kind=kind, vocab_size=400, min_frequency=1))
        ids = tokenizer.encode(sentence)
        page = Page(attention_page(pair_attention(make_model(tokenizer), ids, ids, tokenizer, tokenizer), sentence))
        assert page.tags == harmless.tags
        assert page.scripts[1] == harmless.scripts[1]
        data = json.loads(page.scripts[0])
        assert data["model"] == sentence
        assert data["attentions"][0]["keys"] == [*tokenizer.tokens(ids), "</s>"]
        if kind == "word":
            words = data["attentions"][0]["keys"][:-1]
            assert join_words(words) == normalize(sentence)


def test_pictures_of_an_earlier_call_do_not_stay(tmp_path: Path) -> None:
    kept = [tmp_path / name for name in ("notes.txt", "cross_layer_0.png.bak", "my_cross_layer_0.png")]
    for path in [*kept, tmp_path / "encoder_layer_11.png", tmp_path / "stream_layer_0.png"]:
        path.write_text("earlier")
    written = list(write_pictures(tmp_path, attend("a", "b", "bert-small")[0], "a model"))
    assert set(tmp_path.iterdir()) == {*kept, *written}


def test_the_page_needs_no_network() -> None:
    text = TEMPLATE.read_text(encoding="utf-8")
    page = Page(text)
    assert not [attrs for _, attrs in page.tags if {name for name, _ in attrs} & {"src", "href", "srcset"}]
    assert not re.search(r"https?:|url\(|@import|fetch\(|XMLHttpRequest|import\(", text)
    policies = [dict(attrs)["content"] for _, attrs in page.tags if "http-equiv" in dict(attrs)]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"]


@pytest.mark.parametrize("make", ["file", "below a file"])
def test_an_output_that_is_a_file(make: str, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("precious")
    folder = tmp_path / "taken" / "new" if make == "below a file" else tmp_path / "taken"
    with pytest.raises(UserError, match=r"is a file, not a folder|cannot be written: Not a directory"):
        list(write_pictures(folder, attend("a", "b")[0], "a model"))
    assert (tmp_path / "taken").read_text() == "precious"


def in_browser(page: Path, script: str) -> list:
    """What a script that is put at the end of a page returns, when a browser opens it."""
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next((path for name in names if (path := shutil.which(name))), None)
    if browser is None:
        pytest.skip("no Chromium on this machine")
    ending = f"<script>document.title = JSON.stringify((() => {{ {script} }})());</script></body>"
    page.write_text(page.read_text("utf-8").replace("</body>", ending), encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    flags.append(f"--user-data-dir={page.parent / 'profile'}")
    command = [browser, *flags, "--dump-dom", page.as_uri()]
    shown = subprocess.run(command, capture_output=True, timeout=120, check=True).stdout.decode("utf-8")
    found = re.search(r"<title>(.*?)</title>", shown, re.DOTALL)
    assert found, shown
    return json.loads(html.unescape(found[1]))


def test_pointing_at_a_word_shows_what_it_looks_at(tmp_path: Path) -> None:
    """Arabic to Chinese, layer 1, head 2, third target word: lines run their script's way, colours are weights."""
    attentions, _ = attend("جلست القطة على 3 <b> سجادة .", "猫 坐 在 <i> 垫子 上")
    cross = attentions[2]
    (tmp_path / "page.html").write_text(attention_page(attentions, "<b>model</b>"), encoding="utf-8")
    script = """
        byId("attention").value = 2; choose();
        byId("layer").value = 1; byId("head").value = 2; choose();
        const words = place => [...byId(place).querySelectorAll(".word")];
        words("queries")[2].dispatchEvent(new Event("mouseenter"));
        const lefts = place => words(place).map(word => word.getBoundingClientRect().left);
        return [words("queries").map(w => w.textContent), words("keys").map(w => w.textContent),
            words("keys").map(w => Number(w.title)), words("queries").map(w => w.classList.contains("looking")),
            lefts("queries"), lefts("keys"), document.querySelectorAll("b, i").length, byId("says").textContent];
    """
    queries, keys, weights, looking, query_lefts, key_lefts, num_bold, says = in_browser(tmp_path / "page.html", script)
    assert queries == [word.replace("￭", "·") for word in cross.query_words]
    assert keys == [word.replace("￭", "·") for word in cross.key_words]
    torch.testing.assert_close(torch.tensor(weights, dtype=torch.float32), cross.weights[1, 2, 2], atol=0.6e-3, rtol=0)
    assert looking == [i == 2 for i in range(len(queries))]
    assert query_lefts == sorted(query_lefts), "Chinese runs from left to right"
    assert key_lefts == sorted(key_lefts, reverse=True), "Arabic from right to left, a number and Latin words in it too"
    assert num_bold == 0
    most = int(cross.weights[1, 2, 2].argmax())
    assert says.startswith(f"{queries[2]} looks at {keys[most]} {cross.weights[1, 2, 2, most]:.2f}")


def test_a_word_does_not_look_at_what_is_hidden_from_it(tmp_path: Path) -> None:
    attentions, _ = attend("one two three", "uno dos tres")
    (tmp_path / "page.html").write_text(attention_page(attentions, "a model"), encoding="utf-8")
    script = """
        byId("attention").value = 1; choose();
        look(0);
        return byId("says").textContent;
    """
    assert in_browser(tmp_path / "page.html", script) == "<s> looks at <s> 1.00"


@pytest.mark.parametrize("width", [360, 800])
@pytest.mark.parametrize("num_words", [9, 60])
def test_nothing_is_cut_at_the_edge_of_a_narrow_window(num_words: int, width: int, tmp_path: Path) -> None:
    """Cells shrink as far as their words can be read; what is wider yet is scrolled, and the page says so."""
    attentions, _ = attend(" ".join(f"word{i}" for i in range(num_words)), "uno dos")
    (tmp_path / "page.html").write_text(attention_page(attentions, "a model"), encoding="utf-8")
    # A browser without a screen takes no narrower window than some 500 pixels.
    script = (
        f"document.documentElement.style.width = '{width}px'; dispatchEvent(new Event('resize'));"
        """
        const map = byId("map"), scroll = byId("scroll");
        const outside = [...document.querySelectorAll("body *")].filter(e => !e.parentElement.closest(".scroll"));
        return [Math.max(...outside.map(e => e.getBoundingClientRect().right)), map.offsetWidth, scroll.clientWidth,
            Number(map.dataset.size), byId("wide").offsetHeight > 0, getComputedStyle(scroll).overflowX];
    """
    )
    right, map_needs, room, size, is_told, overflow = in_browser(tmp_path / "page.html", script)
    assert right <= width
    assert is_told == (map_needs > room)
    if num_words == 9:
        assert map_needs <= room
        assert size > 14
    else:
        assert (size, overflow) == (14, "auto")


def test_every_attention_layer_and_head_can_be_chosen(tmp_path: Path) -> None:
    attentions, _ = attend("one two three", "uno dos")
    (tmp_path / "page.html").write_text(attention_page(attentions, "a model"), encoding="utf-8")
    script = """
        const seen = [];
        for (const attention of byId("attention").options) {
            byId("attention").value = attention.value; choose();
            for (const button of [...byId("all").querySelectorAll("button")]) {
                button.click();
                seen.push([Number(attention.value), byId("layer").value, byId("head").value,
                    [...byId("keys").querySelectorAll(".word")].map(w => Number(w.title))]);
            }
        }
        return seen;
    """
    seen = in_browser(tmp_path / "page.html", script)
    assert len(seen) == (3 + 2 + 2) * (4 + 1)
    for number, layer, head, shown in seen:
        heads = attentions[number].weights[int(layer)]
        expected = heads[int(head)] if int(head) < len(heads) else heads.mean(0)
        torch.testing.assert_close(torch.tensor(shown, dtype=torch.float32), expected[0], atol=0.6e-3, rtol=0)


@pytest.mark.parametrize("preset", ["transformer-base", "gpt2-small"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_model_whose_weights_are_not_finite_is_refused(preset: str, value: float) -> None:
    """With a given target no search refuses it first."""
    tokenizer = train_tokenizer(["a b c"], TokenizerConfig(kind="word", vocab_size=20, min_frequency=1))
    model, ids = make_model(tokenizer, preset), tokenizer.encode("a b c")
    with torch.no_grad():
        model.get_parameter("decoder.layers.0.feed_forward.out_proj.bias").fill_(value)
    with pytest.raises(UserError, match=r"attention is not a number\. Use an earlier checkpoint"):
        pair_attention(model, ids, ids, tokenizer, tokenizer)
