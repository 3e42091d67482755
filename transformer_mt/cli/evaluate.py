"""`tmt evaluate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer_mt.cli.options import RUNS, CheckpointOption, DeviceOption, RunOption, RunsOption, path_option
from transformer_mt.cli.terminal import remark
from transformer_mt.errors import UserError

if TYPE_CHECKING:
    from transformer_mt.evaluation.evaluate import Evaluation


def evaluate(
    run: RunOption = None,
    checkpoint: CheckpointOption = None,
    split: Annotated[
        str | None, typer.Option(help="train, validation or test, as the run's config names them. Default: test.")
    ] = None,
    src: Annotated[Path | None, path_option("A file of sources, instead of a split.")] = None,
    ref: Annotated[Path | None, path_option("Its references, line by line.")] = None,
    beam_size: Annotated[int | None, typer.Option(help="1: greedy. Default: the run's config.")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="0: none. Default: the run's config.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Sentences decoded together.")] = None,
    bleu_tokenize: Annotated[
        str | None, typer.Option(help="13a, intl, zh, ja-mecab, char or none. Default: by target language.")
    ] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case in BLEU and chrF.")] = False,
    data_root: Annotated[str | None, typer.Option(help="Where the split's relative paths start now.")] = None,
    device: DeviceOption = "auto",
    precision: Annotated[
        str | None, typer.Option(help="fp32, bf16, fp16, int8 or auto. Default: the run's config.")
    ] = None,
    runs: RunsOption = RUNS,
) -> None:
    """Score a run: BLEU and chrF of real translations, nll and ppl; saved in the run's folder."""
    if (src is None) != (ref is None):
        raise UserError("--src and --ref go together. Give both, or neither for a split.")
    for option, value in (("--split", split), ("--data-root", data_root)):
        if src is not None and value is not None:
            raise UserError(f"--src and {option} were both given. Give --src and --ref, or what names a split.")
    from tqdm import tqdm

    from transformer_mt.config.run_folder import newest_run, open_run
    from transformer_mt.decoding.checkpoint import find_checkpoint
    from transformer_mt.decoding.options import search_options
    from transformer_mt.decoding.translator import Translator
    from transformer_mt.evaluation.evaluate import Scoring, save_evaluation
    from transformer_mt.evaluation.evaluate import evaluate as evaluate_run
    from transformer_mt.machine.memory import keep_freed_memory

    folder = open_run(run) if run is not None else newest_run(runs)
    taken = find_checkpoint(folder, checkpoint).name
    remark(f"run: {folder.path}, checkpoint: {taken}")
    keep_freed_memory()
    translator = Translator.load(folder.path, taken, device, precision)
    if translator.note:
        remark(translator.note)
    config = translator.config
    files = (src, ref) if src is not None and ref is not None else None
    scoring = Scoring(split or "test", files, data_root, bleu_tokenize, lowercase)
    remark(f"scored: {scoring.description(config)}")
    options = search_options(config.decoding, beam_size, length_penalty, batch_size=batch_size, scored=False)
    with tqdm(desc="Translating", unit=" sentences", disable=None) as bar:
        evaluation, rows = evaluate_run(translator, folder, taken, scoring, options, bar.update)
    _print(evaluation, config.model.max_len)  # first: what took so long to find is not to be lost
    print(f"saved: {save_evaluation(folder, scoring, evaluation, rows)}")


def _print(evaluation: "Evaluation", max_len: int) -> None:
    print(f"BLEU {evaluation.bleu:.2f}  {evaluation.bleu_signature}")
    print(f"chrF {evaluation.chrf:.2f}  {evaluation.chrf_signature}")
    print(f"nll {evaluation.nll:.4f}  ppl {evaluation.ppl:.2f}")
    print(f"{evaluation.num_sentences:,} sentences, {evaluation.sentences_per_second:.1f} a second")
    if evaluation.num_blank:
        print(f"{evaluation.num_blank:,} pairs with a blank side were left out")
    if evaluation.num_untranslated:
        print(
            f"{evaluation.num_untranslated:,} sources are longer than the model's {max_len} positions: translated as "
            "nothing"
        )
    if evaluation.num_too_long:
        print(f"{evaluation.num_too_long:,} pairs have a side longer than {max_len} positions: left out of nll and ppl")
