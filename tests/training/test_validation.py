"""When a validation comes, what it scores and how, and what is better."""

from pathlib import Path

import pytest
import sacrebleu
import torch
from toy import SPANISH, toy_config, write_toy_corpus
from trainings import metrics

from transformer_mt.config.schema import RunConfig
from transformer_mt.data.preparation import PreparedData, prepare_data, prepare_training_data
from transformer_mt.decoding.load_model import build_model
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError
from transformer_mt.model.interface import TranslationModel
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.run import start_or_resume
from transformer_mt.training.validation import Sample, ValidationResult, Validator, is_better, refuse_unread

CHINESE = dict(zip([*SPANISH, "."], "一二三四五六七八九十。", strict=True))


def random_model(config: RunConfig, data: PreparedData) -> TranslationModel:
    """A model that has learned nothing, its weights so far apart that not all sentences have one translation."""
    torch.manual_seed(1)
    model = build_model(config, data.src_tokenizer, data.tgt_tokenizer).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return model


def validated(config: RunConfig, data: PreparedData) -> ValidationResult:
    return Validator(config, data, "fp32").validate(random_model(config, data), lambda: None)


def sides(samples: list[Sample]) -> tuple[list[str], list[str], list[str]]:
    """Sources, references and hypotheses."""
    return [s.src for s in samples], [s.reference for s in samples], [s.hypothesis for s in samples]


@pytest.mark.parametrize(
    ("metric", "now", "best", "expected"),
    [
        ("bleu", {"bleu": 1.0, "nll": 3.0}, None, True),
        ("bleu", {"bleu": 2.0, "nll": 9.0}, {"bleu": 1.0, "nll": 3.0}, True),
        ("bleu", {"bleu": 1.0, "nll": 1.0}, {"bleu": 2.0, "nll": 3.0}, False),
        ("bleu", {"bleu": 0.0, "nll": 2.0}, {"bleu": 0.0, "nll": 3.0}, True),
        ("bleu", {"bleu": 0.0, "nll": 3.0}, {"bleu": 0.0, "nll": 3.0}, False),
        ("chrf", {"chrf": 3.0, "nll": 3.0}, {"chrf": 2.0, "nll": 1.0}, True),
        ("nll", {"nll": 2.0}, {"nll": 3.0}, True),
        ("nll", {"nll": 3.0}, {"nll": 2.0}, False),
        ("ppl", {"ppl": 8.0, "nll": 2.0}, {"ppl": 9.0, "nll": 2.2}, True),
    ],
)
def test_better_by_the_metric_then_by_nll(metric: str, now: dict, best: dict | None, expected: bool) -> None:
    assert is_better(metric, now, best) is expected


def test_epochs_between_validations_are_counted_and_the_end_has_its_own(corpus: Path, tmp_path: Path) -> None:
    training = {"max_tokens": 256, "max_steps": None, "max_epochs": 5}
    config = toy_config(corpus, training=training, validation={"every_steps": None, "every_epochs": 2})
    run = RunFolder(tmp_path / "run")
    assert start_or_resume(config, run, resume=False).exit_status == 0
    assert [line["epoch"] for line in metrics(run.path) if line["kind"] == "validation"] == [2, 4, 5]


def test_patience_begins_anew_with_every_best(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nlls = iter([3.0, 4.0, 2.0, 4.0, 1.0, 5.0, 6.0, 7.0])
    monkeypatch.setattr(
        Validator, "validate", lambda *_: ValidationResult({"nll": next(nlls)}, [Sample("one.", "uno.", "uno.")])
    )
    config = toy_config(corpus, validation={"every_steps": 1, "patience": 2})
    outcome = start_or_resume(config, RunFolder(tmp_path / "run"), resume=False)
    assert (outcome.step, outcome.reason) == (7, "nll has not improved in 2 validations")


def test_the_sample_is_drawn_from_the_seed_and_translated_greedily(corpus: Path, data: PreparedData) -> None:
    config = toy_config(corpus)
    sources, _, hypotheses = sides(validated(config, data).samples)
    translator = Translator(random_model(config, data), data.src_tokenizer, data.tgt_tokenizer, config)
    assert hypotheses == translator.translate(sources, beam_size=1)
    assert hypotheses != translator.translate(sources)
    assert len({*hypotheses}) > 1
    drawn = [Validator(config.model_copy(update={"seed": seed}), data, "fp32").sources for seed in (3, 4, 3)]
    assert drawn[0] == drawn[2] != drawn[1]
    assert drawn[0][:5] == sources


@pytest.mark.parametrize(
    ("key", "told"),
    [("glossary", "terms.txt, line 1 has 1 column"), ("avoid", "terms.txt holds no word or phrase to avoid")],
)
def test_lists_of_the_search_are_read_before_the_first_step(corpus: Path, tmp_path: Path, key: str, told: str) -> None:
    """And not at the first validation, which may come hours later."""
    path, run = tmp_path / "terms.txt", RunFolder(tmp_path / "run")
    config = toy_config(corpus, decoding={key: str(path)})
    with pytest.raises(UserError, match=rf"no file .*terms.txt. Check the name after decoding\.{key}"):
        start_or_resume(config, run, resume=False)
    path.write_text("\n" if key == "avoid" else "term\n")
    with pytest.raises(UserError, match=told):
        start_or_resume(config, run, resume=False)
    assert not run.path.exists()


def with_tags(tmp_path: Path, train: list[str | None], **splits: list[dict]) -> RunConfig:
    """Trained on a source of each tag."""
    folder = write_toy_corpus(tmp_path / "data")
    data = {"train": [{"src": "train.en", "tgt": "train.es", "tag": tag} for tag in train], **splits}
    return toy_config(folder, data=data, tokenizer={"tags": ["<2es>", "<2en>", "<BT>"]})


def refused(config: RunConfig) -> str:
    """What is said before the first step; nothing where the run may begin."""
    try:
        refuse_unread(config, prepare_training_data(config))
    except UserError as error:
        return str(error)
    return ""


VALID = {"src": "valid.en", "tgt": "valid.es"}


def test_a_validation_without_the_one_tag_of_the_training_is_refused(tmp_path: Path) -> None:
    """Its nll would be that of lines which no training had. A tag of no language is not expected of it."""
    told = refused(with_tags(tmp_path, ["<2es>", "<2es>"]))
    assert "A source of data.validation has no tag, and every source of data.train has <2es>" in told
    assert told.endswith("Give it tag: <2es>.")
    assert refused(with_tags(tmp_path, ["<2es>"], validation=[{**VALID, "tag": "<2es>"}])) == ""
    assert refused(with_tags(tmp_path, ["<BT>"])) == ""
    assert refused(with_tags(tmp_path, ["<BT>", "<2es>"])) == ""
    sources = (tmp_path / "data" / "valid.en").read_text(encoding="utf-8").split("\n")[:-1]
    (tmp_path / "data" / "typed.en").write_text("".join(f"<2es> {text}\n" for text in sources), encoding="utf-8")
    assert refused(with_tags(tmp_path, ["<2es>"], validation=[{**VALID, "src": "typed.en"}])) == ""


def test_a_test_that_says_no_language_is_refused_before_the_first_step(tmp_path: Path) -> None:
    validation = [{**VALID, "tag": "<2es>"}]
    config = with_tags(tmp_path, ["<2es>", "<2en>"], validation=validation, test=[*validation, VALID])
    told = refused(config)
    assert "data.test: valid.en / valid.es does not say to which language it is translated" in told
    assert "learns es, en. Give it a tag, such as tag: <2es>, set decoding.to, or" in told
    made = with_tags(tmp_path, ["<2es>", "<2en>"], validation=validation, test=[{**VALID, "tag": "<BT>"}])
    assert "does not say to which language" in refused(made)
    on_the_hub = [{"hub": "somebody/pairs", "split": "test"}]
    assert "somebody/pairs" in refused(with_tags(tmp_path, ["<2es>", "<2en>"], validation=validation, test=on_the_hub))
    assert refused(config.model_copy(update={"decoding": config.decoding.model_copy(update={"to": "es"})})) == ""
    assert refused(with_tags(tmp_path, ["<2es>"], validation=validation, test=[VALID])) == ""
    (tmp_path / "data" / "typed.en").write_text("<2en> one\n", encoding="utf-8")
    (tmp_path / "data" / "typed.es").write_text("uno\n", encoding="utf-8")
    typed = [{"src": "typed.en", "tgt": "typed.es"}]
    assert refused(with_tags(tmp_path, ["<2es>", "<2en>"], validation=validation, test=typed)) == ""


def test_as_many_as_asked_for_are_scored_though_more_are_shown(corpus: Path, data: PreparedData) -> None:
    result = validated(toy_config(corpus, validation={"num_translated": 2}), data)
    _, references, hypotheses = sides(result.samples)
    assert len(references) == 5
    for metric, score in (("bleu", sacrebleu.corpus_bleu), ("chrf", sacrebleu.corpus_chrf)):
        assert result.metrics[metric] == pytest.approx(score(hypotheses[:2], [references[:2]]).score)
        assert result.metrics[metric] != pytest.approx(score(hypotheses, [references]).score)


def test_case_is_ignored_where_the_tokenizer_ignores_it(corpus: Path, tmp_path: Path) -> None:
    write_toy_corpus(tmp_path)
    upper = tmp_path / "valid.es"
    upper.write_text(upper.read_text().upper())
    config = toy_config(tmp_path, tokenizer={"lowercase": True}, validation={"num_translated": 5})
    result = validated(config, prepare_data(config))
    _, references, hypotheses = sides(result.samples)
    assert references[0].isupper()
    lower = [reference.lower() for reference in references]
    assert result.metrics["chrf"] == pytest.approx(sacrebleu.corpus_chrf(hypotheses, [lower]).score)
    assert result.metrics["bleu"] == pytest.approx(sacrebleu.corpus_bleu(hypotheses, [lower]).score)


def test_bleu_is_that_of_the_target_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chinese has no spaces: to 13a a sentence is a word."""
    hypotheses = ["三七九五四一。", "八五二。", "一", "九八七六五。", "六四八。"]
    write_toy_corpus(tmp_path)
    for path in tmp_path.glob("*.es"):
        text = path.read_text().replace(" ", "")
        for word, character in CHINESE.items():
            text = text.replace(word, character)
        path.write_text(text, encoding="utf-8")
    tokenizer = {"kind": "bpe", "vocab_size": 300}
    config = toy_config(tmp_path, data={"tgt_lang": "zh-CN"}, tokenizer=tokenizer, validation={"num_translated": 5})
    monkeypatch.setattr(Validator, "_translate", lambda *_: hypotheses)
    result = validated(config, prepare_data(config))
    _, references, _ = sides(result.samples)
    by_character, by_word = (
        sacrebleu.corpus_bleu(hypotheses, [references], tokenize=name).score for name in ("zh", "13a")
    )
    assert result.metrics["bleu"] == pytest.approx(by_character)
    assert by_character != pytest.approx(by_word)
