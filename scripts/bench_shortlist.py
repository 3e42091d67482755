"""What a lexical shortlist gains and costs on a CPU: seconds and BLEU with it and without, in one run.

    python scripts/bench_shortlist.py --run RUN --src FILE --ref FILE [--precisions fp32 int8] [--batch-size 64]
        [--translations 50] [--common 100] [--rounds 2]

RUN is a trained model, whose aligner is trained at its first use. The lines of --src are translated greedily and with a
beam of 5, in one process on one thread, with and without a list in turn. Seconds are those of the process, which other
work on the machine lengthens little, and the best round counts. BLEU is of the text as it stands in --ref, by white
space. The last column says how many texts are those of the whole vocabulary.
"""

import time
from pathlib import Path

import command
import sacrebleu
import torch

from transformer_mt.aligning.run_aligner import aligner_of_run
from transformer_mt.data.sources.files import read_lines
from transformer_mt.decoding.search.options import search_options
from transformer_mt.decoding.shortlist import NUM_COMMON, NUM_TRANSLATIONS, Shortlist
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError
from transformer_mt.storage.run_folder import open_run

BEAMS = (1, 5)
HEAD = "| precision | beam | list | seconds | ratio | BLEU | same text |\n|---|---|---|---|---|---|---|"


def measured(
    translator: Translator, shortlist: Shortlist, lines: list[str], beam_size: int, batch_size: int, rounds: int
) -> dict[str, tuple[float, list[str]]]:
    """The seconds and texts with each list."""
    options = search_options(translator.config.decoding, beam_size=beam_size, batch_size=batch_size, scored=False)
    best: dict[str, tuple[float, list[str]]] = {}
    for _ in range(rounds):
        for name, taken in (("all", None), ("short", shortlist)):
            translator.shortlist = taken
            start = time.process_time()
            texts = [line.text for line in translator.translate_lines(lines, options)]
            seconds = time.process_time() - start
            best[name] = min(best.get(name, (seconds, texts)), (seconds, texts))
    return best


def main() -> None:
    """Parse, measure, print."""
    parser = command.Parser(__doc__)
    parser.add_argument("--run", type=command.folder, required=True)
    parser.add_argument("--src", type=command.file, required=True, help="sources, one a line")
    parser.add_argument("--ref", type=command.file, required=True, help="their translations, for BLEU")
    parser.add_argument("--precisions", nargs="+", default=["fp32", "int8"])
    parser.add_argument("--batch-size", type=command.count(), default=64)
    parser.add_argument("--translations", type=command.count(), default=NUM_TRANSLATIONS, help="of each source word")
    parser.add_argument("--common", type=command.count(0), default=NUM_COMMON, help="words of every list")
    parser.add_argument("--rounds", type=command.count(), default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    lines, references = ([text for _, text in read_lines(path)] for path in (args.src, args.ref))
    if len(lines) != len(references):
        raise UserError(
            f"{args.src} has {len(lines):,} lines and {args.ref} {len(references):,}. Give a line for each."
        )
    aligner = aligner_of_run(open_run(Path(args.run)), print)
    rows = []
    for precision in args.precisions:
        translator = Translator.load(args.run, device="cpu", precision=precision)
        tokenizers = translator.src_tokenizer, translator.tgt_tokenizer
        shortlist = Shortlist(aligner, *tokenizers, args.translations, args.common)
        if not rows:
            sizes = [len(shortlist.tokens_of(row)) for row in tokenizers[0].encode_batch(lines)]
            print(f"{len(lines):,} lines, batches of {args.batch_size}; a list has {sum(sizes) / len(sizes):,.0f} of "
                  f"{tokenizers[1].vocab_size:,} tokens; torch {torch.__version__}\n\n{HEAD}")  # fmt: skip
        for beam_size in BEAMS:
            found = measured(translator, shortlist, lines, beam_size, args.batch_size, args.rounds)
            whole = found["all"]
            for name, (seconds, texts) in found.items():
                bleu = sacrebleu.corpus_bleu(texts, [references], tokenize="none", force=True).score
                same = sum(one == other for one, other in zip(texts, whole[1], strict=True))
                rows.append(name)
                print(f"| {precision} | {beam_size} | {name} | {seconds:.2f} | {whole[0] / seconds:.2f} | {bleu:.2f} | "
                      f"{same:,} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    command.run(main)
