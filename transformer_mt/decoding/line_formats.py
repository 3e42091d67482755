"""How a translation, or the score of one, is written as lines of text."""

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from transformer_mt.aligning.alignment import pharaoh
from transformer_mt.decoding.scoring import Scored
from transformer_mt.decoding.translation import Translated, Translation

BARS = re.compile(r"\|{3,}")


def text_lines(number: int, translated: Translated, n_best: int) -> list[str]:
    """One line; or, for an n-best list, `NUMBER ||| text ||| score` for each hypothesis, at least one. Alignments that
    were asked for are the last column of each.
    """
    aligned = _alignment_columns(translated)
    if n_best == 1:
        return [translated.text + aligned[0]]
    if not translated.hypotheses:
        return [f"{number} |||  ||| {aligned[0]}"]
    return [
        f"{number} ||| {h.text} ||| {h.score:.4f}{column}"
        for h, column in zip(translated.hypotheses, aligned, strict=True)
    ]


def _alignment_columns(translated: Translated) -> list[str]:
    """The column of each hypothesis, at least one, with the bars before it; nothing where no alignment is wanted."""
    links = [h.alignment or [] for h in translated.hypotheses] or [[]]
    return [f" ||| {pharaoh(of_one)}" if translated.is_aligned else "" for of_one in links]


def moses_lines(number: int, translated: Translated) -> list[str]:
    """The n-best list of one line as Moses writes it, with one feature: `NUMBER ||| text ||| F0= log_prob ||| score`.

    Moses counts sentences from 0. A line without a translation has one hypothesis, which is empty, at no cost: who
    reads such a list expects one at least for every sentence. Bars that would end a column are written `&#124;`, as by
    the Moses tokenizer. Alignments that were asked for are a fifth column, as in Moses.
    """
    texts = [
        (BARS.sub(lambda bars: "&#124;" * len(bars[0]), h.text), h.log_prob, h.score) for h in translated.hypotheses
    ] or [("", 0.0, 0.0)]
    return [
        f"{number - 1} ||| {text} ||| F0= {log_prob:.4f} ||| {score:.4f}{column}"
        for (text, log_prob, score), column in zip(texts, _alignment_columns(translated), strict=True)
    ]


def json_line(translated: Translated) -> str:
    """The JSON object of one line."""
    hypotheses = [_json_hypothesis(hypothesis) for hypothesis in translated.hypotheses]
    too_long = {"too_long": True} if translated.too_long else {}
    problem = {"problem": translated.problem} if translated.problem else {}
    line = {"source": translated.source, "hypotheses": hypotheses, **too_long, **problem}
    return json.dumps(line, ensure_ascii=False)


def _json_hypothesis(h: Translation) -> dict[str, Any]:
    utility = {} if h.utility is None else {"utility": h.utility}
    alignment = {} if h.alignment is None else {"alignment": h.alignment}
    return {"text": h.text, "score": h.score, "log_prob": h.log_prob, **utility, "tokens": h.tokens, **alignment}


class LineFormat(NamedTuple):
    """A way to write translations. `lines` makes what is written of one line of the input, from its number, counted
    from 1, its translation and `n_best`. `numbered_from` is the number that the first line of an input has in what is
    written, by `n_best`; None where lines have no numbers.
    """

    lines: Callable[[int, Translated, int], list[str]]
    numbered_from: Callable[[int], int | None]


FORMATS = {
    "text": LineFormat(text_lines, lambda n_best: 1 if n_best > 1 else None),
    "jsonl": LineFormat(lambda number, translated, n_best: [json_line(translated)], lambda n_best: None),
    "moses": LineFormat(lambda number, translated, n_best: moses_lines(number, translated), lambda n_best: 0),
}


def score_text(scored: Scored, word_scores: bool) -> str:
    """One line of `tmt score`: the score, and where asked a tab and the log-probabilities of all words and EOS. Blank
    where there is no score.
    """
    if scored.problem:
        return ""
    words = [*(word.log_prob for word in scored.words), scored.log_probs[-1]]
    return f"{scored.score:.6f}" + ("\t" + " ".join(f"{log_prob:.6f}" for log_prob in words)) * word_scores


def score_json(scored: Scored, word_scores: bool) -> dict:
    """One line of `tmt score --format jsonl`."""
    line: dict[str, Any] = {"source": scored.source, "translation": scored.translation}
    if scored.problem:
        return line | {"score": None, "log_prob": None, "tokens": [], "problem": scored.problem}
    line |= {"score": scored.score, "log_prob": scored.log_prob, "tokens": list(scored.tokens)}
    if word_scores:
        words = [{"word": word.word, "log_prob": word.log_prob} for word in scored.words]
        line |= {"token_log_probs": list(scored.log_probs), "words": words}
    return line
