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
    """One line; or, for an n-best list, `NUMBER ||| text ||| score` for each hypothesis, at least one. Confidences and
    alignments that were asked for are the last columns of each. See `_column` for bars in a text that has columns.
    """
    columns = [confidence + links for confidence, links in zip(*_columns(translated), strict=True)]
    if n_best == 1:
        return [_column(translated.text) + columns[0] if columns[0] else translated.text]
    written = translated.written
    if not written:
        return [f"{number} |||  ||| {columns[0]}"]
    return [
        f"{number} ||| {_column(h.text)} ||| {h.score:.4f}{column}" for h, column in zip(written, columns, strict=True)
    ]


def _columns(translated: Translated) -> tuple[list[str], list[str]]:
    """The columns of confidences and alignments, of each hypothesis that is written, at least one, with the bars before
    them; nothing where they are not wanted.
    """
    written = translated.written
    sure = [f"{h.confidence.sentence:.4f}" if h.confidence else "" for h in written] or [""]
    links = [pharaoh(h.alignment or []) for h in written] or [""]
    return (
        [f" ||| {column}" * translated.is_judged for column in sure],
        [f" ||| {column}" * translated.is_aligned for column in links],
    )


def _column(text: str) -> str:
    """The text, in which bars that would end a column are written `&#124;`, as by the Moses tokenizer."""
    return BARS.sub(lambda bars: "&#124;" * len(bars[0]), text)


def moses_lines(number: int, translated: Translated) -> list[str]:
    """The n-best list of one line as Moses writes it, with one feature: `NUMBER ||| text ||| F0= log_prob ||| score`.

    Moses counts sentences from 0. A line without a translation has one hypothesis, which is empty, at no cost: who
    reads such a list expects one at least for every sentence. A confidence that was asked for is a second feature, and
    alignments are a fifth column, as in Moses.
    """
    hypotheses = translated.written or [Translation("", 0.0, 0.0, [])]
    lines = []
    for h, links in zip(hypotheses, _columns(translated)[1], strict=True):
        sure = f" F1= {h.confidence.sentence if h.confidence else 0:.4f}" * translated.is_judged
        lines.append(f"{number - 1} ||| {_column(h.text)} ||| F0= {h.log_prob:.4f}{sure} ||| {h.score:.4f}{links}")
    return lines


def json_line(translated: Translated) -> str:
    """The JSON object of one line."""
    hypotheses = [_json_hypothesis(hypothesis) for hypothesis in translated.hypotheses]
    too_long = {"too_long": True} if translated.too_long else {}
    problem = {"problem": translated.problem} if translated.problem else {}
    rejected = {"rejected": True} if translated.rejected else {}
    line = {"source": translated.source, "hypotheses": hypotheses, **too_long, **problem, **rejected}
    return json.dumps(line, ensure_ascii=False)


def _json_hypothesis(h: Translation) -> dict[str, Any]:
    utility = {} if h.utility is None else {"utility": h.utility}
    line = {"text": h.text, "score": h.score, "log_prob": h.log_prob, **utility, "tokens": h.tokens}
    if h.alignment is not None:
        line["alignment"] = h.alignment
    if h.confidence is not None:
        words = [{"word": word.word, "confidence": round(word.confidence, 4)} for word in h.confidence.words]
        line |= {"confidence": round(h.confidence.sentence, 4), "words": words}
    return line


class LineFormat(NamedTuple):
    """A way to write translations. `lines` makes what is written of one line of the input, from its number, counted
    from 1, its translation and `n_best`. `is_numbered` says, by `n_best`, whether that number is written.
    """

    lines: Callable[[int, Translated, int], list[str]]
    is_numbered: Callable[[int], bool]


FORMATS = {
    "text": LineFormat(text_lines, lambda n_best: n_best > 1),
    "jsonl": LineFormat(lambda number, translated, n_best: [json_line(translated)], lambda n_best: False),
    "moses": LineFormat(lambda number, translated, n_best: moses_lines(number, translated), lambda n_best: True),
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
        line |= {"score": None, "log_prob": None, "tokens": [], "problem": scored.problem}
    else:
        line |= {"score": scored.score, "log_prob": scored.log_prob, "tokens": list(scored.tokens)}
    if word_scores:
        words = [{"word": word.word, "log_prob": word.log_prob} for word in scored.words]
        line |= {"token_log_probs": list(scored.log_probs), "words": words}
    return line
