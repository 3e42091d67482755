"""Alignments by attention: by hand, against loops over the weights that `tmt attention` draws, and in a language whose
links are known.
"""

import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest
from named_toy import name_of, named_pairs, named_translator
from torch import Tensor
from toy import toy_pairs
from translators import MODELS_BY_NAME, ONE_STREAM, SMALL, make_translator

from transformer_mt.aligning.words import words_of
from transformer_mt.decoding.ensemble import Ensemble
from transformer_mt.decoding.search.options import search_options
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError
from transformer_mt.finishing import attention_alignment as module
from transformer_mt.finishing.attention_alignment import AttentionAligner, words_by_token
from transformer_mt.finishing.word_alignment import AlignedTranslator
from transformer_mt.inspect.attention import ATTENTIONS, pair_attention
from transformer_mt.model.interface import TranslationModel

PAIRS = [*toy_pairs(5, seed=5), ("one two", ""), ("", "uno"), ("one", "dos tres"), ("one " * 60, "uno")]
BPE = {"kind": "bpe", "vocab_size": 300, "min_frequency": 10**6}  # bytes alone, so that words have several tokens


def test_a_word_has_the_mean_over_its_tokens_of_the_sum_over_the_source_words_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pair of a word of two tokens and a mark each, by hand."""
    translator = make_translator(SMALL, [("ab c.", "de f.")] * 3, tokenizer=BPE)
    ids = translator.src_tokenizer.encode("ab."), translator.tgt_tokenizer.encode("de f")
    assert [len(row) for row in ids] == [4, 5]  # the space is a token, and counts for the word behind it
    weights = np.array([
        [0.1, 0.3, 0.2, 0.3, 0.1], [0.3, 0.1, 0.0, 0.2, 0.4], [0.0, 0.0, 0.8, 0.1, 0.1],
        [0.0, 0.0, 0.0, 1.0, 0.0], [0.1, 0.2, 0.3, 0.0, 0.4],
    ])  # fmt: skip
    monkeypatch.setattr(AttentionAligner, "_of_tokens", lambda self, src, tgt: [weights[:, :4]])
    (found,) = AttentionAligner(translator).posteriors([("ab.", "de f")])
    assert found == pytest.approx(np.array([[(0.6 + 0.4 + 0.8) / 3, (0.3 + 0.2 + 0.1) / 3], [0.3, 0.5]]))
    (alignment,) = AttentionAligner(translator).align([("ab.", "de f")])
    assert alignment.links == [(0, 0), (1, 1)]
    assert alignment.pharaoh() == "0-0", "a mark at a word links nothing"


def by_loops(translator: Translator, src: str, tgt: str, layer: int) -> np.ndarray:
    """The same of one pair, over the weights that `tmt attention` draws."""
    sides = translator.src_tokenizer, translator.tgt_tokenizer
    ids = [tokenizer.encode(text) for tokenizer, text in zip(sides, (src, tgt), strict=True)]
    kind = ATTENTIONS[translator.model.config.architecture][-1].name
    drawn = pair_attention(translator.model, ids[0], ids[1], *sides)
    (weights,) = (one.weights[layer].mean(dim=0) for one in drawn if one.kind.name == kind)
    weights = weights[-len(ids[1]) - 1 :]
    tokens = [words_by_token(text, tokenizer) for tokenizer, text in zip(sides, (src, tgt), strict=True)]
    found = np.zeros((len(words_of(tgt)), len(words_of(src))))
    for j in range(found.shape[0]):
        own = [k for k in range(len(ids[1])) if tokens[1][k, j]]
        for i in range(found.shape[1]):
            found[j, i] = sum(float(weights[k, m] * tokens[0][m, i]) for k in own for m in range(len(ids[0]))) / len(
                own
            )
    return found


@pytest.mark.parametrize("kind", ["word", "bpe"])
@pytest.mark.parametrize("name", ["two layers", "one stream", "transformer-base", "t5-small"])
def test_it_is_the_attention_that_is_drawn_whatever_else_is_in_the_batch(name: str, kind: str) -> None:
    models = {"two layers": {**SMALL, "num_decoder_layers": 2}, "one stream": {**SMALL, **ONE_STREAM}}
    tokenizer = {"kind": "word"} if kind == "word" else BPE
    model = {**(models.get(name) or MODELS_BY_NAME[name]), "max_len": 48}
    translator = make_translator(model, tokenizer=tokenizer)
    for layer in range(-len(translator.model.source_attentions), 0):
        found = AttentionAligner(translator, layer).posteriors(PAIRS)
        for pair, weights in list(zip(PAIRS, found, strict=True))[:5]:
            assert weights == pytest.approx(by_loops(translator, *pair, layer), abs=1e-5)
        assert [weights.shape for weights in found[5:]] == [(0, 2), (1, 0), (2, 1), (1, 60)]
        assert not found[8].any()
        alone = [AttentionAligner(translator, layer).posteriors([pair])[0] for pair in PAIRS]
        assert all(one == pytest.approx(other, abs=1e-5) for one, other in zip(alone, found, strict=True))


def test_the_default_is_the_layer_before_the_last_and_an_ensemble_has_the_mean() -> None:
    translator = make_translator({**SMALL, "num_decoder_layers": 3})
    aligners = AttentionAligner(translator), AttentionAligner(translator, 1)
    default, before = (aligner.posteriors(PAIRS[:3]) for aligner in aligners)
    assert all(map(np.array_equal, default, before))
    assert not np.allclose(default[0], AttentionAligner(translator, 2).posteriors(PAIRS[:1])[0])
    translator.search_model = Ensemble([translator.search_model, translator.search_model])
    for one, other in zip(AttentionAligner(translator).posteriors(PAIRS[:3]), default, strict=True):
        assert one == pytest.approx(other, abs=1e-6)
    with pytest.raises(UserError, match=r"There is no layer 4 with attention to the source\. Take 1 to 3\."):
        AttentionAligner(translator, 3)


def test_long_pairs_come_in_batches_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    translator, weights_of = make_translator({**SMALL, "max_len": 48}), module.source_weights
    pairs = [*PAIRS, ("one " * 40, "uno " * 9), ("two", "dos " * 40), *toy_pairs(9, seed=6), ("one " * 40, "uno " * 40)]
    aligner, shapes = AttentionAligner(translator), []

    def noted(model: TranslationModel, src: Tensor, tgt_in: Tensor, layer: int) -> Tensor:
        shapes.append((len(src), src.size(1) - 1, tgt_in.size(1)))  # without EOS
        return weights_of(model, src, tgt_in, layer)

    monkeypatch.setattr(module, "source_weights", noted)
    expected, soft = aligner.posteriors(pairs), aligner.soft_links(pairs)
    assert [num for num, *_ in shapes] == [18, 18]
    monkeypatch.setattr(module, "CELLS_AT_ONCE", 400)
    shapes.clear()
    for one, other in zip(aligner.posteriors(pairs), expected, strict=True):
        assert one == pytest.approx(other, abs=1e-5)
    assert sum(num for num, *_ in shapes) == 18
    assert len(shapes) < 9, "small pairs stay together"
    assert all(num == 1 or num * src * tgt <= 400 for num, src, tgt in shapes)
    assert [[link[:2] for link in links] for links in aligner.soft_links(pairs)] == [
        [link[:2] for link in links] for links in soft
    ]


@pytest.mark.parametrize(("num_pairs", "num_words"), [(12, 300), (1, 4000)], ids=["many", "too long"])
@pytest.mark.parametrize("method", ["soft_links", "align"])
def test_no_matrix_is_held_longer_than_it_is_needed(
    method: str, num_pairs: int, num_words: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A matrix of 300 words a side takes 0.7 MB, and one of 100,000 words a side would take 80 GB."""
    monkeypatch.setattr(module, "PAIRS_AT_ONCE", 1)
    aligner = AttentionAligner(make_translator({**SMALL, "max_len": 320}, training={"max_tokens": 320}))
    aligner.soft_links([("one two", "uno dos")])  # what is loaded once
    tracemalloc.start()
    try:
        found = getattr(aligner, method)([("one " * num_words, "uno " * num_words)] * num_pairs)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found) == num_pairs
    assert peak < 2**22 + num_pairs * num_words * 600, "the words themselves take some"


def known_links(src: str) -> set[tuple[int, int]]:
    """Each word translates the one at its place, but for the last two, which change places; the mark is a word."""
    n = len(src.split())
    return {(i, i) for i in range(n - 2)} | {(n - 2, n - 1), (n - 1, n - 2), (n, n)}


def test_a_trained_model_looks_at_the_words_that_it_translates() -> None:
    translator, _ = named_translator()
    pairs = [pair for pair in named_pairs(700)[600:] if len(pair[0].split()) > 2]
    assert any(name_of(number) in src for src, _ in pairs for number in range(1728)), "there are words that are UNK"
    found = AttentionAligner(translator).align(pairs)
    num_right = sum(len(known_links(src) & set(one.links)) for (src, _), one in zip(pairs, found, strict=True))
    num_links = sum(len(known_links(src)) + len(one.links) for (src, _), one in zip(pairs, found, strict=True))
    assert 1 - 2 * num_right / num_links < 0.2


@pytest.mark.parametrize("soft", [False, True])
def test_a_translator_gives_them_with_its_hypotheses(soft: bool) -> None:
    translator, _ = named_translator()
    texts: Sequence[str] = [src for src, _ in named_pairs(4)] + [""]
    options = search_options(translator.config.decoding, beam_size=3, n_best=2)
    aligner = AttentionAligner(translator)
    for line in AlignedTranslator(translator, aligner, soft).translate_lines(texts, options):
        for hypothesis in line.hypotheses:
            (alone,) = aligner.align([(line.source, hypothesis.text)])
            links = [link[:2] for link in hypothesis.alignment or []]
            assert links
            assert set(alone.white_space_links()) <= set(links) if soft else links == alone.white_space_links()
