"""What is told of two systems, on a terminal and in a report, claims no more than the scores bear out."""

import re

from sets import small_set

from transformer_mt.judging.judgement import Judgement, judge_set
from transformer_mt.judging.report_page import report_page
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
