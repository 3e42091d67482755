"""A run of both directions: scores of each in validations and evaluations, and `--to` on the command line."""

import json
from pathlib import Path

import pytest
import sacrebleu
import yaml
from commands import call_tmt
from toy import toy_mapping, write_toy_corpus
from trainings import metrics

from transformer_mt.config.loading import load_config
from transformer_mt.data.preparation import prepare_data
from transformer_mt.decoding.translator import Translator
from transformer_mt.training.validation import Validator

FORWARD, BACK = {"tag": "<2es>"}, {"tag": "<2en>", "reverse": True}


def both(name: str) -> list[dict]:
    return [{"src": f"{name}.en", "tgt": f"{name}.es", **way} for way in (FORWARD, BACK)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`runs/toy`, which has learned little, of both directions."""
    folder = tmp_path_factory.mktemp("both")
    write_toy_corpus(folder / "data")
    data = {"train": both("train"), "validation": both("valid"), "test": both("valid")[::-1]}
    mapping = toy_mapping(
        folder / "data",
        data=data,
        tokenizer={"joint": True, "tags": ["<2es>", "<2en>"]},
        validation={"every_steps": 20, "num_translated": 30},
        training={"max_steps": 20, "max_tokens": 128},
    )
    (folder / "toy.yaml").write_text(yaml.safe_dump(mapping))
    result = call_tmt(folder, "train", "--config", "toy.yaml")
    assert result.returncode == 0, result.stderr
    (folder / "told.txt").write_text(result.stdout)
    return folder


def test_a_validation_scores_each_direction(folder: Path) -> None:
    """nll of all pairs of a direction, as if they were the split; BLEU of those that were translated, by sacreBLEU."""
    (line,) = (line for line in metrics(folder / "runs/toy") if line["kind"] == "validation")
    translator = Translator.load(folder / "runs/toy", "step_20", device="cpu")
    config = load_config(str(folder / "runs/toy/config.yaml")).config
    whole = prepare_data(config)
    validator = Validator(config, whole, "fp32")
    hypotheses = translator.translate(validator.sources, beam_size=1)
    for number, name in enumerate(("en-es", "es-en")):
        one = config.data.model_copy(update={"validation": [config.data.validation[number]]})
        alone = config.model_copy(update={"data": one})
        data = prepare_data(alone, (translator.src_tokenizer, translator.tgt_tokenizer))
        found = Validator(alone, data, "fp32").validate(translator.model, lambda: None).metrics
        assert found.keys() == {"nll", "ppl", "bleu", "chrf"}, "of one direction there is nothing to tell apart"
        assert line[f"nll/{name}"] == pytest.approx(found["nll"], rel=1e-5)
        tag = ("<2es>", "<2en>")[number]
        places = [i for i, text in enumerate(validator.sources) if text.startswith(tag)]
        texts, references = ([some[i] for i in places] for some in (hypotheses, validator.references))
        assert line[f"bleu/{name}"] == pytest.approx(sacrebleu.corpus_bleu(texts, [references]).score)
        assert 0 < len(places) < 30
    assert sorted((line["nll/en-es"], line["nll"], line["nll/es-en"]))[1] == line["nll"]
    told = (folder / "told.txt").read_text()
    assert f"; en-es nll {line['nll/en-es']:.2f} bleu {line['bleu/en-es']:.2f}; es-en nll" in told
    assert 'translate with: tmt translate --run runs/toy --to es "..."' in told
    events = b"".join(path.read_bytes() for path in (folder / "runs/toy").glob("events.out.tfevents.*"))
    assert b"validation/bleu/es-en" in events


def test_an_evaluation_scores_each_direction(folder: Path) -> None:
    """As evaluations of the files of each, with the tag that --to puts before them."""
    result = call_tmt(folder, "evaluate", "--run", "runs/toy")
    assert result.returncode == 0, result.stderr
    evaluations = folder / "runs/toy/evaluations"
    whole = json.loads((evaluations / "test_step_20_beam2_lp0.6.json").read_text())
    assert list(whole["directions"]) == ["es-en", "en-es"]
    for src, tgt in (("en", "es"), ("es", "en")):
        files = ("--src", f"data/valid.{src}", "--ref", f"data/valid.{tgt}")
        alone = call_tmt(folder, "evaluate", "--run", "runs/toy", *files, "--to", tgt)
        assert alone.returncode == 0, alone.stderr
        (saved,) = evaluations.glob(f"*_to-{tgt}.json")
        found = json.loads(saved.read_text())
        assert found["directions"] == {}
        ours = whole["directions"][f"{src}-{tgt}"]
        assert ours == {key: pytest.approx(found[key], rel=1e-5) for key in ("num_sentences", "bleu", "chrf", "nll")}
        assert (
            f"  {src}-{tgt}: BLEU {ours['bleu']:.2f}  chrF {ours['chrf']:.2f}  nll {ours['nll']:.4f}" in result.stdout
        )
        rows = [json.loads(line) for line in saved.with_suffix(".jsonl").read_text().split("\n")[:-1]]
        given = call_tmt(folder, "translate", "--run", "runs/toy", "--to", tgt, "--input", f"data/valid.{src}")
        assert given.stdout == "".join(row["hypothesis"] + "\n" for row in rows)
        judged = call_tmt(folder, "evaluate", "--run", "runs/toy", *files, "--to", tgt, "--html", "report.html")
        assert judged.returncode == 0, judged.stderr
        assert f"{found['bleu']:.2f}" in judged.stdout


@pytest.mark.parametrize("tag", ["null", "<2fr>"])
def test_a_validation_that_could_not_translate_is_refused_before_the_first_step(
    folder: Path, tmp_path: Path, tag: str
) -> None:
    validation = f"data.validation=[{{src: valid.en, tgt: valid.es, tag: {tag}}}]"
    tags = "tokenizer.tags=[<2es>, <2en>, <2fr>]"
    command = ("train", "--config", "toy.yaml", "--runs", str(tmp_path), tags, validation)
    result = call_tmt(folder, *command)
    assert (result.returncode, list(tmp_path.glob("*/checkpoints"))) == (2, [])
    told = "does not begin with the tag of a language that is learned: <2es>, <2en>. Give its source such a tag"
    assert told in " ".join(result.stderr.split())
    with_default = call_tmt(folder, *command, "decoding.to=es", "training.max_steps=1")
    if tag == "null":
        assert with_default.returncode == 0
    else:
        assert "A line of data.validation cannot be translated: it begins with <2fr>, which" in with_default.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["translate", "one two"], "This model translates to es, en, and 'one two' does not say to which."),
        (["translate", "--to", "fr", "one two"], "to is fr, which this model has not learned. It has es, en."),
        (["translate", "--to", "", "one two"], "to is blank, which this model has not learned."),
        (["translate", "--to", "fr", "--input", "none.txt"], "none.txt"),
        (["evaluate", "--to", "es"], "to is es, and the pairs have a tag of their own, <2en>. Leave to (--to) out"),
        (["evaluate", "--src", "data/valid.en", "--ref", "data/valid.es"], "does not say to which"),
        (["score", "--src", "data/valid.en", "--ref", "data/valid.es"], "does not say to which"),
        (["score", "--to", "fr", "--src", "data/valid.en", "--ref", "data/valid.es"], "It has es, en."),
        (["export", "out", "--to", "huggingface"], "tokenizer.tags holds <2es>, <2en>"),
        (["serve", "--to", "es"], "--to"),
    ],
)
def test_refusals(folder: Path, arguments: list[str], message: str) -> None:
    result = call_tmt(folder, arguments[0], "--run", "runs/toy", *arguments[1:])
    assert result.returncode == 2
    assert message in " ".join(result.stderr.split())
    assert result.stdout == ""


def test_a_line_says_itself_to_which_language(folder: Path) -> None:
    """What is typed is stronger than --to."""
    results = [
        call_tmt(folder, "translate", "--run", "runs/toy", *arguments)
        for arguments in (["--to", "en", "uno dos"], ["<2en> uno dos"], ["--to", "es", "<2en> uno dos"])
    ]
    assert len({result.stdout for result in results}) == 1
    assert results[0].returncode == 0
