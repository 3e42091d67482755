"""A model of whole words that has learned a toy language in which names come, each too rare for its vocabulary."""

from functools import cache
from pathlib import Path

import torch
from toy import toy_pairs
from translators import make_translator

from transformer_mt.aligning.aligner import Aligner
from transformer_mt.data.batches.batching import make_batch
from transformer_mt.decoding.translator import Translator

LETTERS = "bdfgklmnprst"


def name_of(number: int) -> str:
    """A name for each number below 1728, capitalised."""
    first, second, third = (LETTERS[number // 12**place % 12] for place in (0, 1, 2))
    return f"{first}a{second}e{third}o".capitalize()


def named_pairs(num: int) -> list[tuple[str, str]]:
    """Toy pairs in which some words gave way to names, which both languages write alike."""
    pairs = []
    for number, (src, tgt) in enumerate(toy_pairs(num)):
        src_words, tgt_words = src.removesuffix(".").split(), tgt.removesuffix(".").split()
        n = len(src_words)
        for which, place in enumerate({number % n, number // 7 % n} if number % 2 else {number % n}):
            if place < n - 2:  # the language turns the last two words around
                src_words[place] = tgt_words[place] = name_of((2 * number + which) % 1728)
        pairs.append((" ".join(src_words) + ".", " ".join(tgt_words) + "."))
    return pairs


@cache
def named_translator() -> tuple[Translator, Aligner]:
    """The model, trained for a few seconds, and an aligner of its pairs."""
    pairs = named_pairs(600)
    model = {"d_model": 32, "d_ff": 64, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1}
    translator = make_translator(
        {**model, "dropout": 0.0, "max_len": 24}, pairs, 0.0, tokenizer={"min_frequency": 5, "joint": False}
    )
    sides = [
        translator.src_tokenizer.encode_batch([src for src, _ in pairs]),
        translator.tgt_tokenizer.encode_batch([tgt for _, tgt in pairs]),
    ]
    steps = 300
    optimizer = torch.optim.AdamW(translator.model.parameters(), 0.004)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=steps)
    for step in range(steps):
        chosen = [(step * 32 + i) * 7 % len(pairs) for i in range(32)]
        batch = make_batch(*([torch.tensor(side[i]).numpy() for i in chosen] for side in sides))
        logits = translator.model(batch.src, batch.tgt_in)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.tgt_out.flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    trained = Translator(translator.model, translator.src_tokenizer, translator.tgt_tokenizer, translator.config)
    return trained, Aligner.train(pairs)


def write_corpus(folder: Path) -> None:
    """The pairs as train.en and train.es."""
    for language, side in zip(("en", "es"), zip(*named_pairs(600), strict=True), strict=True):
        (folder / f"train.{language}").write_text("".join(f"{text}\n" for text in side), encoding="utf-8")
