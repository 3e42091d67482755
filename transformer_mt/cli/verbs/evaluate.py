"""`tmt evaluate`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transformer_mt.cli.options import Models, path_option
from transformer_mt.cli.terminal import remark
from transformer_mt.cli.verb_options import with_options
from transformer_mt.config.switching_off import NONE
from transformer_mt.data.longest_line import LONGEST_LINE
from transformer_mt.errors import UserError
from transformer_mt.plurals import counted, rounded

if TYPE_CHECKING:
    from transformer_mt.evaluation.evaluate import Evaluation, Scoring

_STAYS = "The scores above are whole; to have them saved, see to that place and evaluate again."


@with_options
def evaluate(
    models: Models,
    split: Annotated[
        str | None, typer.Option(help="train, validation or test, as the run's config names them. Default: test.")
    ] = None,
    src: Annotated[
        list[Path] | None, path_option("A file of sources, instead of a split; several are several test sets.")
    ] = None,
    ref: Annotated[
        list[Path] | None, path_option("Its references, line by line; several of each test set, in their order.")
    ] = None,
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="A B", help="Two runs, or two files of finished translations of --ref: which is better?"),
    ] = None,
    html: Annotated[
        Path | None, path_option("Write a report: scores with intervals, where they are won and lost, sentences.")
    ] = None,
    bleu_tokenize: Annotated[
        str | None, typer.Option(help="13a, intl, zh, ja-mecab, char or none. Default: by target language.")
    ] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case in BLEU and chrF.")] = False,
    data_root: Annotated[
        str | None, typer.Option(help="The folder of the split's files, where it is no longer the config's data.root.")
    ] = None,
    *,
    decoding: dict[str, Any],
) -> None:
    """Score a run: BLEU and chrF of real translations, nll and ppl; saved in the (first) run's folder. With --compare,
    --html, or several references or test sets also TER, intervals, and which of two is better.
    """
    if decoding.get("constraints", NONE) != NONE:
        raise UserError("--constraints belongs to tmt translate: what is evaluated has none. Leave it out.")
    for option, value in (("--split", split), ("--data-root", data_root)):
        if src and value is not None:
            raise UserError(f"--src and {option} were both given. Give --src and --ref, or what names a split.")
    if compare or html or max(map(len, (src or [], ref or []))) > 1:
        from transformer_mt.cli.judging import Asked, judge

        return judge(Asked(compare, html, models, split, src, ref, bleu_tokenize, lowercase, data_root, decoding))
    if bool(src) != bool(ref):
        raise UserError("--src and --ref go together. Give both, or neither for a split.")
    from transformer_mt.evaluation.evaluate import Scoring, SetFiles

    files = (SetFiles(src[0], (ref[0],)),) if src and ref else ()
    _evaluate(models, Scoring(split or "test", files, data_root, bleu_tokenize, lowercase), decoding)


def _evaluate(models: Models, scoring: "Scoring", decoding: dict[str, Any]) -> None:
    """Score one model, or an ensemble, on one test set; save the scores and print them."""
    from tqdm import tqdm

    from transformer_mt.evaluation.evaluate import evaluate as evaluate_run
    from transformer_mt.evaluation.evaluate import save_evaluation
    from transformer_mt.storage.run_folder import newest_run

    # Named below with their checkpoints.
    models = replace(models, run=models.run or [newest_run(models.runs).path])
    options = models.search_options(decoding, scored=False)
    translator = models.load(decoding.get("precision"))
    for each, its_checkpoint in translator.checkpoints:
        remark(f"run: {each.path}, checkpoint: {its_checkpoint.name}")
    folder, taken = translator.checkpoints[0]  # the results of an ensemble lie in the folder of its first run
    config = translator.config
    remark(f"scored: {scoring.description(config)}")
    if unused := config.decoding.lines.unused:
        remark(unused)
    with tqdm(desc="Translating", unit=" sentences", disable=None) as bar:
        evaluation, rows = evaluate_run(translator, folder, taken.name, scoring, options, bar.update)
    try:
        # Saved first, because the reader of the output may be gone. Printed even where saving fails.
        saved = save_evaluation(folder, scoring, evaluation, rows, _STAYS)
    finally:
        _print(evaluation, config.model.max_len)
    print(f"saved: {saved}")


def _print(evaluation: "Evaluation", max_len: int) -> None:
    print(f"BLEU {evaluation.bleu:.2f}  {evaluation.bleu_signature}")
    print(f"chrF {evaluation.chrf:.2f}  {evaluation.chrf_signature}")
    print(f"nll {evaluation.nll:.4f}  ppl {rounded(evaluation.ppl)}")
    for name, of in evaluation.directions.items():
        nll = f"  nll {of['nll']:.4f}" if "nll" in of else ""
        number = counted(int(of["num_sentences"]), "sentence")
        print(f"  {name}: BLEU {of['bleu']:.2f}  chrF {of['chrf']:.2f}{nll}  {number}")
    print(f"{counted(evaluation.num_sentences, 'sentence')}, {evaluation.sentences_per_second:.1f} a second")
    if evaluation.num_blank:
        print(f"left out: {counted(evaluation.num_blank, 'pair')} with a blank side")
    if evaluation.num_beyond:
        print(f"left out: {counted(evaluation.num_beyond, 'pair')} with a side longer than {LONGEST_LINE:,} bytes")
    if evaluation.num_untranslated:
        number = counted(evaluation.num_untranslated, "source")
        print(f"translated as nothing: {number} longer than the model's {max_len} positions")
    if evaluation.num_too_long:
        number = counted(evaluation.num_too_long, "pair")
        print(f"left out of nll and ppl: {number} with a side longer than {max_len} positions")
