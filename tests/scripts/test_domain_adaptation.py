"""scripts/domain_adaptation.py: the domain is what the text is like, and nothing that is tested was trained on."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from domain_adaptation import DOMAINS, HELD_OUT, likeness, parted
from pretraining_gain import key

from transformer_mt.errors import UserError

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/domain_adaptation.py"
ANIMALS = ["cat", "dog", "horse", "bird", "cow"]
PLACES = ["hill", "lawn", "street", "field", "roof", "bridge", "shore", "farm", "step", "path"]
SCENES = [f"a {a} sleeps on the {place} of {b}s" for a in ANIMALS for b in ANIMALS for place in PLACES]
TALK = [f"did you tell {n} people that I owe them {n + k} coins ?" for n in range(1500) for k in (1, 2)]
SCENES = [f"{scene} {n}" for scene in SCENES for n in range(10)]
LIKE = [f"the {b} sleeps on a {place}" for b in ANIMALS for place in PLACES]


def pairs() -> list[tuple[str, str]]:
    """Every second scene has two translations, and one translation in ten belongs to two scenes."""
    found = [(line, line.upper()) for line in (*SCENES, *TALK)]
    found += [(line.capitalize(), f"{line} again") for line in SCENES[::2]]
    return found + [(f"{line} too", line.upper()) for line in SCENES[::10]]


def test_the_domain_is_what_is_like_the_text() -> None:
    scores = likeness([*SCENES, *TALK, "a cat"], LIKE)
    assert "a cat" not in scores, "too short to be like anything"
    assert min(scores[line] for line in SCENES) > max(scores[line] for line in TALK)
    files = parted(pairs(), LIKE, 1500)
    assert all("sleeps" in src for split in ("train", "validation", "test") for src, _ in files[f"domain.{split}"])
    assert len(files["domain.train"]) <= 1500 + 1


def test_what_is_held_out_is_nowhere_else() -> None:
    files = parted(pairs(), LIKE, 1500)
    assert {name for name, part in files.items() if len(part) == HELD_OUT} >= {
        f"{domain}.{split}" for domain in DOMAINS for split in ("validation", "test")
    }
    held = {key(line) for name, part in files.items() if not name.endswith("train") for pair in part for line in pair}
    trained = {key(line) for domain in DOMAINS for pair in files[f"{domain}.train"] for line in pair}
    assert trained
    assert not held & trained
    sources = [{key(src) for src, _ in files[f"{domain}.train"]} for domain in DOMAINS]
    assert not sources[0] & sources[1], "all pairs of a source belong to one side"
    given = pairs()
    there = set(given)
    assert all(pair in there for part in files.values() for pair in part)
    assert parted(given[::-1], LIKE, 1500) == files, "the order of the pairs does not matter"


def test_too_few_pairs_are_refused() -> None:
    with pytest.raises(UserError, match="100 pairs for the rest, and 2,000 are needed"):
        parted([(line, line) for line in (*SCENES[:2000], *TALK[:100])], LIKE, 1000)


@pytest.mark.slow
def test_each_model_has_a_row(tmp_path: Path) -> None:
    for name, side in zip(("src", "tgt"), zip(*pairs(), strict=True), strict=True):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    (tmp_path / "like").write_text("".join(f"{line}\n" for line in LIKE), encoding="utf-8")
    files = [word for name in ("src", "tgt", "like") for word in (f"--{name}", str(tmp_path / name))]
    small = ["--pairs", "1500", "--seeds", "1", "2", "--steps", "10", "--adapting-steps", "5", "--d-model", "16"]
    arguments = [sys.executable, str(SCRIPT), *files, *small, "--work", str(tmp_path / "work")]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names = re.findall(r"^\| (\w+): [\w ]+ \| \w* \| [\d.]+ ± [\d.]+ \| [\d.]+ ± [\d.]+ \|$", done.stdout, re.MULTILINE)
    assert names[-5:] == ["rest", "domain", "adapted", "mixed", "back"]
