"""Word alignments by the attention that a model itself pays to the source as it writes a translation."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from transformer_mt.aligning.aligner import Pair
from transformer_mt.aligning.alignment import Alignment, Matrix, SoftLinks, soft_links
from transformer_mt.aligning.words import Word, words_of
from transformer_mt.config.special_ids import BOS_ID, EOS_ID
from transformer_mt.data.batches.batching import pad_rows
from transformer_mt.data.longest_line import is_beyond
from transformer_mt.data.tokenizers import Tokenizer, normalize
from transformer_mt.decoding.coverage import source_weights
from transformer_mt.decoding.ensemble import members_of
from transformer_mt.decoding.evidence import word_shares
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError

PAIRS_AT_ONCE = 64
CELLS_AT_ONCE = 2**22  # pairs of tokens: 64 pairs of 256 tokens a side
BEFORE_THE_LAST = -2  # of one layer it is the only one


class AttentionAligner:
    """Aligns pairs as an `Aligner` does, by one pass of a translator's model over each pair: teacher forcing.

    The weights are those of the layer before the last (Garg et al. 2019, section 4.1), or of `layer`, as Python counts
    them, averaged over heads; of an ensemble also over models. A word's weight on a source word is the mean over its
    tokens of the sum over that word's. A pair with a blank side, or a side longer than the model's positions, has none.
    The model reads the tag of the language `to` before a source without one; it is no word of the pair.
    """

    def __init__(self, translator: Translator, layer: int = BEFORE_THE_LAST, to: str | None = None) -> None:
        """Raises UserError where a model has no such layer or has not learned the language, and where its source is a
        picture.
        """
        if translator.config.model.patches is not None:
            raise UserError(
                "The alignment from attention is one of words, and with data.source_as: picture the model looks at "
                "patches. Use --alignment-from aligner."
            )
        num_layers = min(len(member.source_attentions) for member in members_of(translator.search_model))
        if layer != BEFORE_THE_LAST and not -num_layers <= layer < num_layers:
            raise UserError(f"There is no layer {layer + 1} with attention to the source. Take 1 to {num_layers}.")
        self.translator = translator
        self.layer = layer
        self.to = to
        translator.languages.check(to)

    def align(self, pairs: Sequence[Pair]) -> list[Alignment]:
        """The alignment of each pair, in order: each target word with the source word of the largest weight."""
        found = [Alignment([], src, tgt, too_long=bool(src and tgt)) for src, tgt in self._words(pairs)]
        for place, weights in self._weights(pairs):
            links = [(int(row.argmax()), j) for j, row in enumerate(weights)]
            found[place] = replace(found[place], links=sorted(links), too_long=False)
        return found

    def posteriors(self, pairs: Sequence[Pair]) -> list[Matrix]:
        """The weights of each pair (tgt words, src words); a row sums to one less what EOS has, and in a decoder-only
        model less what target words have. Where there are none it has zeros, which take no memory and cannot be
        written to.
        """
        found = [np.broadcast_to(0.0, (len(tgt), len(src))) for src, tgt in self._words(pairs)]
        for place, weights in self._weights(pairs):
            found[place] = weights
        return found

    def soft_links(self, pairs: Sequence[Pair]) -> list[SoftLinks]:
        """The soft links of each pair between white-space words. A pair without weights has none."""
        words = list(self._words(pairs))
        found: list[SoftLinks] = [[] for _ in words]
        for place, weights in self._weights(pairs):
            found[place] = soft_links(*words[place], weights)
        return found

    def _words(self, pairs: Sequence[Pair]) -> Iterator[tuple[list[Word], list[Word]]]:
        return ((words_of(self._text(src, 0)), words_of(self._text(tgt, 1))) for src, tgt in pairs)

    def _text(self, text: str, side: int) -> str:
        """The text as the tokenizer reads it."""
        return "" if is_beyond(text) else normalize(text, self._tokenizer(side).lowercase)

    def _tokenizer(self, side: int) -> Tokenizer:
        return (self.translator.src_tokenizer, self.translator.tgt_tokenizer)[side]

    def _weights(self, pairs: Sequence[Pair]) -> Iterator[tuple[int, Matrix]]:
        """The weights (tgt words, src words) of each pair that has some, with its place, a batch at a time."""
        texts = [[self._text(pair[side], side) for pair in pairs] for side in (0, 1)]
        read = [self.translator.languages.parted(text, self.to).whole for text in texts[0]]
        num_added = [len(one.split()) - len(text.split()) for one, text in zip(read, texts[0], strict=True)]
        ids = [self._tokenizer(side).encode_batch(some) for side, some in enumerate((read, texts[1]))]
        longest = self.translator.config.model.max_len - 1
        to_do = [i for i, rows in enumerate(zip(*ids, strict=True)) if all(0 < len(row) <= longest for row in rows)]
        for batch in _batches({i: (len(ids[0][i]), len(ids[1][i])) for i in to_do}):
            for i, weights in zip(batch, self._of_tokens(*([side[i] for i in batch] for side in ids)), strict=True):
                yield i, self._of_words(pairs[i], weights[:, num_added[i] :])

    @torch.inference_mode()
    def _of_tokens(self, src: list[list[int]], tgt: list[list[int]]) -> list[Matrix]:
        """The weights of each pair of ids as the target's tokens are chosen, (tgt tokens, src tokens)."""
        device = self.translator.device
        sides = [[*row, EOS_ID] for row in src], [[BOS_ID, *row[:-1]] for row in tgt]
        weights = source_weights(
            self.translator.search_model, *(pad_rows(side).to(device) for side in sides), layer=self.layer
        )
        weights = weights.double().cpu().numpy()
        return [of[: len(t), : len(s)] for of, s, t in zip(weights, src, tgt, strict=True)]

    def _of_words(self, pair: Pair, weights: Matrix) -> Matrix:
        src, tgt = (words_by_token(self._text(pair[side], side), self._tokenizer(side)) for side in (0, 1))
        return (tgt / tgt.sum(axis=0)).T @ weights @ src


def _batches(sizes: Mapping[int, tuple[int, int]]) -> Iterator[list[int]]:
    """Numbers of pairs of these sizes (source tokens, target tokens) in batches: sources of like lengths together, up
    to `PAIRS_AT_ONCE`, and of long ones so many that the padded matrices have at most `CELLS_AT_ONCE`.
    """
    batch, tgt_len = [], 0
    for i in sorted(sizes, key=lambda i: sizes[i][0]):
        tgt_len = max(tgt_len, sizes[i][1])
        if len(batch) == PAIRS_AT_ONCE or (batch and (len(batch) + 1) * sizes[i][0] * tgt_len > CELLS_AT_ONCE):
            yield batch
            batch, tgt_len = [], sizes[i][1]
        batch.append(i)
    if batch:
        yield batch


def words_by_token(text: str, tokenizer: Tokenizer) -> Matrix:
    """Which words each token of a normalized text writes (tokens, words): shares that add up to 1."""
    return word_shares(text, [(word.start, word.end) for word in words_of(text)], tokenizer)
