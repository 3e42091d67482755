"""`tmt fill`: what a model puts in the place of hidden words, against the scores of those very words."""

import math
import re
from pathlib import Path

import pytest
import yaml
from commands import call_tmt
from test_pretraining import PAIRS, write_config
from toy import write_toy_corpus

from transformer_mt.decoding.filling.whole_sentences import Filling, fillings
from transformer_mt.decoding.scoring import token_log_probs
from transformer_mt.decoding.search.greedy import Hypothesis
from transformer_mt.decoding.translator import Translator


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of each kind, and one on pairs."""
    folder = tmp_path_factory.mktemp("filling")
    write_toy_corpus(folder / "data")
    for kind, steps in (("spans", 60), ("infilling", 60), ("causal", 2)):
        write_config(folder, f"{kind}.yaml", data={"noise": {"kind": kind}}, training={"max_steps": steps})
        assert call_tmt(folder, "pretrain", "--config", f"{kind}.yaml", f"name={kind}").returncode == 0
    write_config(folder, "pairs.yaml", data={**PAIRS, "noise": None}, training={"max_steps": 2})
    assert call_tmt(folder, "train", "--config", "pairs.yaml", "name=pairs").returncode == 0
    return folder


def hidden(translator: Translator, plain: str, *words: str) -> list[int]:
    """The ids of a line, the first of these words as <mask_0>, and so on, as the noise hides them."""
    encode = translator.src_tokenizer.encode
    masks = {encode(word)[0]: encode(f"<mask_{number}>")[0] for number, word in enumerate(words)}
    return [masks.get(i, i) for i in encode(plain)]


def test_the_probability_of_spans_is_that_of_the_target_that_says_them(folder: Path) -> None:
    """Of a source whose full stop is that of a line, though a mask touches it."""
    translator = Translator.load(folder / "runs/spans", device="cpu", precision="fp32")
    src = hidden(translator, "<2en> one three two four.", "three", "four")
    found = fillings(translator, "<2en> one [MASK] two [MASK].", 6)
    assert found
    assert found == sorted(found, key=lambda filling: -filling.probability)
    for filling in found:
        assert filling.text.startswith("one ")
        assert filling.text.endswith(".")
        assert not filling.text.endswith(" .")
        first, _, second = filling.text.removeprefix("one ").partition("two")
        said = f"<mask_0> {first} <mask_1> {second.strip().removesuffix('.')} <mask_2>"
        tgt = translator.tgt_tokenizer.encode(" ".join(said.split()))
        (log_probs,) = token_log_probs(translator.search_model, [(src, tgt)])
        assert math.exp(sum(log_probs)) <= filling.probability * 1.001, "no more than all ways to say it"


@pytest.mark.parametrize(
    ("kind", "text", "plain"),
    [
        ("spans", "one [MASK].", "one three."),
        ("spans", "“[MASK]” one, [MASK]!", "“three” one, four!"),
        ("spans", "[MASK], [MASK] one.", "three, four one."),
        ("infilling", "(one [MASK])", "(one three)"),
        ("infilling", "[MASK].", "three."),
    ],
)
def test_a_mask_is_read_where_a_word_would_stand(
    kind: str, text: str, plain: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same ids as the noise makes of the whole line; what is put in stands as the text has it."""
    translator = Translator.load(folder / "runs" / kind, device="cpu")
    asked: list[list[list[int]]] = []
    masks = [translator.tgt_tokenizer.encode(f"<mask_{number}>")[0] for number in range(3)]
    three, four = translator.tgt_tokenizer.encode("three four")
    tokens = [masks[0], three, masks[1], four, masks[2]] if kind == "spans" else [three]

    def search(rows: list[list[int]], options: object) -> list[list[Hypothesis]]:
        asked.append(rows)
        return [[Hypothesis(tokens, -1.0, -1.0)]]

    monkeypatch.setattr(translator, "search", search)
    (filling,) = fillings(translator, f"<2en> {text}", 1)
    assert asked == [[hidden(translator, f"<2en> {plain}", "three", "four")]]
    assert filling == Filling(plain if kind == "spans" else "three", math.exp(-1))


def test_a_mask_for_nothing_leaves_one_space(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    translator = Translator.load(folder / "runs/spans", device="cpu")
    monkeypatch.setattr(translator, "search", lambda *_: [[Hypothesis([], 0.0, 0.0)]])
    found = [fillings(translator, f"<2en> {text}", 1)[0].text for text in ("one [MASK] two [MASK].", "[MASK] one")]
    assert found == ["one two.", "one"]


def test_infilling_says_the_whole_sentence(folder: Path) -> None:
    translator = Translator.load(folder / "runs/infilling", device="cpu", precision="fp32")
    found = fillings(translator, "<2es> uno [MASK] dos.", 3)
    assert found
    for filling in found:
        (score,) = translator.score(["<2es> uno <mask_0> dos."], [filling.text])
        assert math.exp(score.log_prob) == pytest.approx(filling.probability, rel=1e-3)


def test_the_command_prints_the_best_first(folder: Path) -> None:
    result = call_tmt(folder, "fill", "--run", "runs/spans", "-n", "3", "<2en> one [MASK] two.")
    assert result.returncode == 0, result.stderr
    numbers = [float(line.split()[0]) for line in result.stdout.splitlines()]
    assert 1 <= len(numbers) <= 3
    assert numbers == sorted(numbers, reverse=True)
    assert "<2en>" not in result.stdout


@pytest.mark.parametrize("keys", [{"beam_size": 6, "diverse_beam_groups": 3}, {"mbr": "bleu", "mbr_candidates": 4}])
def test_what_the_config_says_of_translating_alone_changes_nothing(folder: Path, keys: dict[str, object]) -> None:
    """It was refused where it does not go with the number of fillings, and no option leaves it out."""
    translator = Translator.load(folder / "runs/infilling", device="cpu")
    plain = fillings(translator, "<2en> one [MASK].", 5)
    decoding = translator.config.decoding.model_copy(update=keys)
    translator.config = translator.config.model_copy(update={"decoding": decoding})
    assert fillings(translator, "<2en> one [MASK].", 5) == plain


def test_to_is_the_tag_typed_before_the_text(folder: Path) -> None:
    command = ("fill", "--run", "runs/spans", "-n", "3")
    text = "one [MASK] two."
    found = call_tmt(folder, *command, "--to", "en", text)
    assert found.returncode == 0, found.stderr
    assert found.stdout == call_tmt(folder, *command, f"<2en> {text}").stdout
    refused = call_tmt(folder, *command, "--to", "fr", text)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "to is fr, which this model has not learned. It has en, es." in refused.stderr


def test_a_model_that_saw_no_pair_translates_with_a_remark(folder: Path) -> None:
    said = "has learned from text in one language alone, and no translation. Train it on pairs (training.init_from)"
    alone = call_tmt(folder, "translate", "--run", "runs/spans", "--to", "en", "one two.")
    assert alone.returncode == 0, alone.stderr
    assert f"runs/spans {said}" in alone.stderr
    pairs = call_tmt(folder, "translate", "--run", "runs/pairs", "one two.")
    assert pairs.returncode == 0, pairs.stderr
    assert said not in pairs.stderr
    filled = call_tmt(folder, "fill", "--run", "runs/spans", "<2en> one [MASK].")
    assert said not in filled.stderr


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ("spans", 'train on pairs from it with: "training.init_from={run: runs/spans, checkpoint: average}"'),
        ("pairs", 'use it with: tmt translate --run runs/pairs --checkpoint average "..."'),
    ],
)
def test_a_mean_of_checkpoints_is_for_what_the_model_does(folder: Path, run: str, said: str) -> None:
    result = call_tmt(folder, "average", f"runs/{run}", "--last", "1")
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith(f"{said}\n")


@pytest.mark.parametrize("verb", ["trace", "explain --neighbours 0", "attention --force --output drawn"])
def test_a_look_into_a_model_that_saw_no_pair_says_so(folder: Path, verb: str) -> None:
    for run, is_said in (("spans", 1), ("pairs", 0)):
        looked = call_tmt(folder, *verb.split(), "--run", f"runs/{run}", "one two.")
        assert looked.returncode == 0, looked.stderr
        assert looked.stderr.count(f"runs/{run} has learned from text in one language alone") == is_said


def test_the_card_of_a_model_that_saw_no_pair_says_what_it_is(folder: Path) -> None:
    card = call_tmt(folder, "card", "--run", "runs/spans").stdout
    assert "has learned from text of en and es alone (`data.noise.kind: spans`), and no translation" in card
    assert "It has seen no translation, and translates nothing: train it on pairs." in card
    assert "translates en" not in card
    assert "tmt translate" not in card
    head = yaml.safe_load(card.split("---\n")[1])
    assert (head["language"], head["tags"], "pipeline_tag" in head) == (["en", "es"], ["transformer_mt"], False)
    (use,) = re.findall(r"## How to train it on pairs\n\n```yaml\n(.*?)```", card, re.DOTALL)
    write_config(
        folder, "next.yaml", data={**PAIRS, "noise": None}, training={"max_steps": 1, **yaml.safe_load(use)["training"]}
    )
    begun = call_tmt(folder, "train", "--config", "next.yaml", "name=next")
    assert begun.returncode == 0, begun.stderr


@pytest.mark.parametrize(
    ("run", "text", "message"),
    [
        ("pairs", "one [MASK].", "was trained on pairs. Only one of `tmt pretrain`"),
        ("causal", "<2en> one [MASK].", "kind is causal, which hides no words. infilling, spans and masked do."),
        ("spans", "one [MASK].", "begin with a tag: <2en>, <2es>. Begin the text with it"),
        ("spans", "<2en> one.", "no [MASK] in the text"),
        ("spans", "<2en> " + "one [MASK] " * 8, "has 8 masks, and this model knows 7"),
        ("spans", "<2en> [MASK] " + "one " * 20, "longer than the model's positions"),
    ],
)
def test_what_cannot_be_filled_is_told(folder: Path, run: str, text: str, message: str) -> None:
    result = call_tmt(folder, "fill", "--run", f"runs/{run}", text)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
