"""Scores, intervals, p-values and signatures are those that sacreBLEU's own command line prints."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sets import small_set

from transformer_mt.judging.scored_set import ScoredSet, set_of_files
from transformer_mt.judging.scores import gain, is_significant, score_set

WORDS = ["the", "cat", "sat", "on", "a", "mat", "while", "dogs", "ran", "over", "hills", "and", "birds", "sang"]


def write_files(folder: Path, num_refs: int = 1) -> list[Path]:
    """References, and two systems of which the second leaves fewer words out."""
    random = np.random.default_rng(3)
    lines = [[str(random.choice(WORDS)) for _ in range(random.integers(4, 12))] for _ in range(60)]

    def write(name: str, kept: float) -> Path:
        texts = [" ".join(word for word in words if random.random() < kept) for words in lines]
        (folder / name).write_text("".join(f"{text.capitalize()}.\n" for text in texts), encoding="utf-8")
        return folder / name

    refs = [write(f"ref{number}", 1.0 - number / 10) for number in range(num_refs)]
    return [*refs, write("a", 0.8), write("b", 0.81)]


def printed_by_sacrebleu(refs: list[Path], systems: list[Path], *options: str) -> str:
    command = [sys.executable, "-m", "sacrebleu", *map(str, refs), "-i", *map(str, systems), "-w", "4", "-q"]
    command += ["-m", "bleu", "chrf", "ter", "--paired-bs", "-f", "text", *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(("num_refs", "tokenizer", "lowercase"), [(1, "13a", False), (2, "intl", True)])
def test_two_files_against_the_command_line_of_sacrebleu(
    num_refs: int, tokenizer: str, lowercase: bool, tmp_path: Path
) -> None:
    *refs, a, b = write_files(tmp_path, num_refs)
    found = score_set(set_of_files(None, refs, [a, b]), tokenizer, lowercase)
    options = ["--tokenize", tokenizer] + ["--lowercase", "--chrf-lowercase"] * lowercase
    printed = printed_by_sacrebleu(refs, [a, b], *options)
    number = r"(\d+\.\d+) \((\d+\.\d+) ± (\d+\.\d+)\)"
    shown = [tuple(map(float, cell)) for cell in re.findall(number, printed)]
    ours = [
        (score.value, score.mean, score.half)
        for system in (0, 1)
        for score in (s[system] for s in found.scores.values())
    ]
    assert len(shown) == 6
    np.testing.assert_allclose(ours, shown, atol=6e-5)
    p_values = [float(p) for p in re.findall(r"p = (\d\.\d+)", printed)]
    assert p_values == [pytest.approx(pair[1].p_value, abs=6e-5) for pair in found.scores.values()]
    assert max(p_values) > 0.001, "another case: p-values as low as can be would hide a mistake"
    assert all(signature in printed for signature in found.signatures.values())


def test_parts_and_single_sentences_have_the_scores_of_sacrebleu(tmp_path: Path) -> None:
    ref, a, b = write_files(tmp_path)
    test_set = set_of_files(None, [ref], [a, b])
    found = score_set(test_set)
    rows = [4, 9, 17, 30]
    for name, metric in (("BLEU", BLEU()), ("chrF", CHRF()), ("TER", TER())):
        texts = [test_set.outputs[1].texts[row] for row in rows]
        references = [test_set.references[0][row] for row in rows]
        counts = found.counts[name][1]
        part = counts.with_interval(rows)
        assert part.value == pytest.approx(metric.corpus_score(texts, [references]).score)
        assert part.low < part.value < part.high
    each = found.counts["chrF"][0].sentence_scores()
    for row in rows:
        own, reference = test_set.outputs[0].texts[row], test_set.references[0][row]
        assert each[row] == pytest.approx(CHRF().sentence_score(own, [reference]).score)


def test_an_interval_of_one_sentence_is_a_point() -> None:
    found = score_set(small_set(None, ["a b c d e"], ["a b c d f"]))
    for counts in found.counts.values():
        score = counts[0].with_interval([0])
        assert score.half == 0
        assert score.mean == pytest.approx(score.value)


def test_a_lower_ter_is_a_gain_and_equal_systems_do_not_differ() -> None:
    references = [f"{word} one two three {four}" for word in WORDS for four in ("four", "five")]
    same = score_set(small_set(None, references, references[:1] * len(references), references[:1] * len(references)))
    assert not any(map(is_significant, same.scores.values()))
    found = score_set(small_set(None, references, ["one two"] * len(references), references))
    assert {name: gain(name, pair) > 0 for name, pair in found.scores.items()} == dict.fromkeys(found.scores, True)
    assert found.scores["TER"][1].value == 0
    assert all(map(is_significant, found.scores.values()))


def test_ter_of_a_script_without_spaces_counts_its_characters() -> None:
    test_set: ScoredSet = small_set(None, ["今天天气很好"], ["今天天气不好"])
    assert score_set(test_set, "zh").scores["TER"][0].value == pytest.approx(100 / 6)
    assert score_set(test_set, "13a").scores["TER"][0].value == pytest.approx(100)
