"""README's walk through data of one's own: every block as it stands, in its order, in an empty folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pages import section

WALK = section("README.md", "Your own data")
# Only time asks for these: a handful of steps of a tiny model, and a few tokens a translation while it knows nothing.
CUT_SHORT = [
    "model.d_model=32", "model.d_ff=64", "model.num_heads=2", "model.num_encoder_layers=1",
    "model.num_decoder_layers=1",
    "training.max_steps=4", "training.precision=fp32", "validation.num_translated=4",
    "decoding.beam_size=1", "decoding.max_length_ratio=0", "decoding.max_length_extra=4",
]  # fmt: skip
# `tmt` as this Python has it, whatever is on the path.
TMT = f"""tmt() {{
  if [ "$1" = train ]; then set -- "$@" {" ".join(CUT_SHORT)}; fi
  '{sys.executable}' -m transformer_mt "$@"
}}
"""


def _translate_again(corpus: Path) -> None:
    """Every fourth sentence gets a second translation, as in real text; the built-in corpus has no sentence twice."""
    sources, targets = ((corpus / f"train.{language}").read_text("utf-8").split("\n")[:-1] for language in ("en", "es"))
    sources += sources[::4]
    targets += [f"Pues {target}" for target in targets[::4]]
    (corpus / "train.en").write_text("".join(f"{text}\n" for text in sources), encoding="utf-8")
    (corpus / "train.es").write_text("".join(f"{text}\n" for text in targets), encoding="utf-8")


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder after the walk, and what the last block of commands printed."""
    folder = tmp_path_factory.mktemp("walk")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(folder / ".cache")}
    printed = ""
    for above, language, text in re.findall(r"([^\n]*)\n\n```(\w+)\n(.*?)^```$", WALK, re.DOTALL | re.MULTILINE):
        if language == "yaml":
            name = re.search(r"Write `(\w+\.yaml)`:$", above)
            assert name, f"{above!r} does not say which file to write"
            (folder / name[1]).write_text(text, encoding="utf-8")
        else:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", TMT + text], cwd=folder, env=environment,
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
            )  # fmt: skip
            assert done.returncode == 0, f"{text}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
            printed = done.stdout
            if "data export" in text:
                _translate_again(folder / "corpus")
    return folder, printed


def test_its_commands_are_there() -> None:
    verbs = re.findall(r"^tmt ((?:data )?\w+)", WALK, re.MULTILINE)
    assert verbs == ["data export", "data split", "train", "evaluate", "translate"]


def test_it_ends_in_scores_and_a_translation(walked: tuple[Path, str]) -> None:
    folder, printed = walked
    assert "BLEU" in printed
    assert printed.removesuffix("\n").split("\n")[-1].strip(), "no translation"
    assert [path.name.split("_")[0] for path in (folder / "runs/mine/evaluations").glob("*.json")] == ["test"]


def test_no_sentence_of_one_split_is_in_another(walked: tuple[Path, str]) -> None:
    """As the page says: one sentence with several translations would be in the training and in the validation."""
    folder, _ = walked
    for language in ("en", "es"):
        files = [folder / f"mydata/{split}.{language}" for split in ("train", "validation", "test")]
        train, validation, test = (set(file.read_text("utf-8").split("\n")[:-1]) for file in files)
        assert all((train, validation, test))
        assert not (train & validation) | (train & test) | (validation & test)
