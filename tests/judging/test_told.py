"""What is told of two systems, on a terminal and in a report, claims no more than the scores bear out."""

import re

import pytest
from sets import small_set

from transformer_mt.judging.judgement import Judgement, judge_set
from transformer_mt.judging.report_page import report_page
from transformer_mt.judging.scores import FEWEST_SENTENCES
from transformer_mt.judging.told import lines_about

METRICS = ("BLEU", "chrF", "TER")
REFERENCES = [f"sentence {number} is one of a few" for number in range(24)]


def judged(first: list[str], second: list[str], references: list[str] = REFERENCES) -> Judgement:
    return judge_set(small_set(None, references, first, second), "13a", False)


def printed(judgement: Judgement) -> dict[str, str]:
    """By metric, the end of its line of the table: difference, p-value and star."""
    lines = "\n".join(lines_about(judgement))
    return dict(re.findall(r"^(BLEU|chrF|TER) .*±.*?([-+]\d+\.\d\d .*)$", lines, re.MULTILINE))


def in_report(judgement: Judgement) -> dict[str, tuple[str, str]]:
    """By metric, the difference and the p-value of the report's table."""
    page = report_page([judgement], None)
    row = r"<th>(BLEU|chrF|TER)<small>.*?</small></th>(?:<td.*?</td>){2}<td[^>]*>(.*?)</td><td[^>]*>(.*?)</td>"
    return {name: (difference, p) for name, difference, p in re.findall(row, page)}


def test_a_score_that_is_the_same_in_both_has_no_p_value() -> None:
    """sacreBLEU's is the lowest that there is, which reads as the surest of differences."""
    worse = [f"{text} five" for text in REFERENCES]
    same = judged(worse, worse)
    assert {name: end.split()[:2] for name, end in printed(same).items()} == {name: ["+0.00", "–"] for name in METRICS}
    assert in_report(same) == dict.fromkeys(METRICS, ("+0.00", "–"))


def test_one_score_that_is_the_same_beside_others_has_none() -> None:
    """TER ignores case."""
    found = judged(REFERENCES, [text.upper() for text in REFERENCES])
    shown = printed(found)
    assert shown["TER"].split()[:2] == ["+0.00", "–"]
    assert shown["BLEU"].endswith(" 0.0010 *")
    assert in_report(found)["TER"] == ("+0.00", "–")
    assert in_report(found)["BLEU"][1] == "0.0010 *"


@pytest.mark.parametrize("number", [1, 3, FEWEST_SENTENCES - 1])
def test_few_sentences_bear_out_no_verdict(number: int) -> None:
    """Every resample of one sentence is that sentence, which gives the lowest p-value that there is."""
    few = judged(["no"] * number, REFERENCES[:number], REFERENCES[:number])
    lines = "\n".join(lines_about(few))
    counted = f"{number} sentence{'s' * (number > 1)}"
    said = f"Which is better is open: {counted}, and a test of significance needs 20 at least."
    assert f"\n{said}\n" in lines
    assert "*" not in lines
    assert "B is better" not in lines
    assert [end.split()[1] for end in printed(few).values()] == ["–"] * 3
    page = report_page([few], None)
    assert said in page
    assert "beyond chance" not in page
    assert [p for _, p in in_report(few).values()] == ["–"] * 3


def test_enough_sentences_have_one() -> None:
    enough = REFERENCES[:FEWEST_SENTENCES]
    lines = list(lines_about(judged(["no"] * len(enough), enough, enough)))
    assert "B is better than A by BLEU, chrF and TER." in lines
    assert "*: beyond chance, p < 0.05 by sacreBLEU's paired bootstrap" in lines


def test_the_same_few_translations_are_the_same() -> None:
    assert "A and B are the same translations." in list(lines_about(judged(["no"], ["no"], REFERENCES[:1])))
