"""How much slower a beam is for constraints: both sides in one run, in turns.

    python scripts/bench_constraints.py --run RUN [--lines 200] [--beam-size 10] [--phrases 3] [--rounds 3]
        [--foreign] [--patience 1] [--device auto] [--precision fp32]

RUN is a trained model. The sources are those of its validation split, with phrases of one or two words from each
reference, in a random order and none within another. Each side translates all lines; the best round counts. Seconds
are those of one thread's processor, which other work on the machine changes little, and on a GPU those of the clock.
The last line says by which factor constraints are slower: for each line, for each token, and for each hypothesis that
is extended by a token, which is what a search does all the time. What is demanded makes texts longer, and only
hypotheses with all phrases may end. The shares are of the phrases, which a plain beam writes in part anyway. BLEU is
that of the texts as they stand, without another tokenization.
"""

import random
import time
from collections.abc import Sequence
from pathlib import Path

import regex
import sacrebleu
import torch
from measuring import command
from torch import Tensor

from transformer_mt.config.loading import load_config
from transformer_mt.data.corpus import load_corpus
from transformer_mt.decoding.demands import SourceLine
from transformer_mt.decoding.search.greedy import StepFunction
from transformer_mt.decoding.search.options import SearchOptions, search_options
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError
from transformer_mt.model.interface import TranslationModel
from transformer_mt.storage.run_folder import open_run


def phrases_of(reference: str, number: int, chance: random.Random) -> tuple[str, ...]:
    """Up to `number` phrases of one or two words without marks, at places that do not touch each other."""
    words = reference.split()
    found, taken = [], set()
    for start in chance.sample(range(len(words)), len(words)):
        size = chance.choice((1, 2))
        place = range(start, min(start + size, len(words)))
        phrase = " ".join(words[i] for i in place)
        if regex.fullmatch(r"[\p{L}\p{M}\p{N} ]+", phrase) and not taken & {start - 1, *place, place.stop}:
            found.append(phrase)
            taken |= set(place)
        if len(found) == number:
            break
    return tuple(found)


def lines_with_phrases(
    run: Path, num_lines: int, num_phrases: int, foreign: bool
) -> tuple[list[SourceLine], list[str]]:
    """Of so many lines of the run's validation split those with so many phrases, and their references."""
    config = load_config(str(open_run(run).config.resolve())).config
    corpus = list(load_corpus(config.data.validation, config.data))
    chance = random.Random(1)
    pairs = [corpus[i] for i in sorted(chance.sample(range(len(corpus)), min(num_lines, len(corpus))))]
    targets = [tgt for _, tgt in pairs]
    if foreign:
        chance.shuffle(targets)
    lines = [
        (SourceLine(src, constraints=phrases_of(tgt, num_phrases, chance)), reference)
        for (src, reference), tgt in zip(pairs, targets, strict=True)
    ]
    lines = [(line, reference) for line, reference in lines if len(line.constraints) == num_phrases]
    if not lines:
        raise UserError(f"No line has {num_phrases} phrases. Give fewer --phrases, or more --lines.")
    return [line for line, _ in lines], [reference for _, reference in lines]


def is_in(phrase: str, text: str) -> bool:
    return (
        regex.search(rf"(?<![\p{{L}}\p{{M}}\p{{N}}]){regex.escape(phrase)}(?![\p{{L}}\p{{M}}\p{{N}}])", text)
        is not None
    )


def num_extended(translator: Translator, texts: Sequence[str | SourceLine], options: SearchOptions) -> int:
    """How many hypotheses, over all steps, are extended by a token in a search of these texts."""
    num = 0
    make, graphs = translator.decoder, translator.graphs

    def counting(model: TranslationModel, src: Tensor) -> StepFunction:
        decoder = make(model, src)
        step = decoder.step

        def counted(tokens: Tensor) -> Tensor:
            nonlocal num
            num += len(tokens)
            return step(tokens)

        decoder.step = counted  # pyright: ignore[reportAttributeAccessIssue]
        return decoder

    translator.decoder, translator.graphs = counting, None
    translator.translate_lines(texts, options)
    translator.decoder, translator.graphs = make, graphs
    return num


def main() -> None:
    parser = command.Parser(__doc__)
    parser.add_argument("--run", type=command.folder, required=True)
    parser.add_argument("--lines", type=command.count(), default=200)
    parser.add_argument("--beam-size", type=command.count(), default=10)
    parser.add_argument("--phrases", type=command.count(), default=3)
    parser.add_argument("--rounds", type=command.count(), default=3)
    parser.add_argument("--foreign", action="store_true", help="phrases from the reference of another line")
    parser.add_argument("--patience", type=float, help="of both searches, by default the config's")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision")
    asked = parser.parse_args()
    constrained, references = lines_with_phrases(asked.run, asked.lines, asked.phrases, asked.foreign)
    plain = [line.text for line in constrained]
    torch.set_num_threads(1)  # and so no processes, whose seconds would be counted elsewhere
    translator = Translator.load(asked.run, device=asked.device, precision=asked.precision)
    now = time.process_time if translator.device.type == "cpu" else time.perf_counter
    options = search_options(translator.config.decoding, beam_size=asked.beam_size, patience=asked.patience)
    sides = {"plain": plain, "constrained": constrained}
    seconds = dict.fromkeys(sides, float("inf"))
    found = {}
    with translator.keep_processes():
        for texts in (plain[:64], constrained[:64]):
            translator.translate_lines(texts, options)
        for _ in range(asked.rounds):
            for name, texts in sides.items():
                start = now()
                found[name] = translator.translate_lines(texts, options)
                seconds[name] = min(seconds[name], now() - start)
    print(f"{len(plain)} lines, {asked.phrases} phrases each, beam {asked.beam_size}")
    num_tokens = {}
    extended = {name: num_extended(translator, texts, options) for name, texts in sides.items()}
    for name, results in found.items():
        met = [
            is_in(phrase, one.text)
            for line, one in zip(constrained, results, strict=True)
            for phrase in map(str, line.constraints)
        ]
        num_tokens[name] = sum(len(one.hypotheses[0].tokens) + 1 for one in results if one.hypotheses)  # and EOS
        bleu = sacrebleu.corpus_bleu([one.text for one in results], [references], tokenize="none", force=True).score
        share = f"{sum(met) / len(met):.1%} of the phrases are there, BLEU {bleu:.1f}"
        counted = f"{num_tokens[name]:,} tokens, {extended[name]:,} hypotheses extended"
        print(f"{name}: {seconds[name]:.2f} s, {counted}, {share}")
    slower, longer, more = (of["constrained"] / of["plain"] for of in (seconds, num_tokens, extended))
    print(
        f"{slower:.2f} times slower; texts {longer:.2f} times as long, {slower / longer:.2f} times slower a token; "
        f"{more:.2f} times as many hypotheses, {slower / more:.2f} times slower a hypothesis"
    )


if __name__ == "__main__":
    command.run(main)
