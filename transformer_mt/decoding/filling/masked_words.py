"""The likeliest words for each mask of a text, by one pass of an encoder alone (`model.architecture: encoder_only`)."""

from dataclasses import dataclass

import torch

from transformer_mt.config.schema import RunConfig
from transformer_mt.config.special_ids import EOS_ID
from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.decoding.filling.mask_ids import ids_around
from transformer_mt.decoding.filling.whole_sentences import MASK, refuse_without_tag
from transformer_mt.decoding.load_model import load_run
from transformer_mt.errors import UserError
from transformer_mt.machine.device import choose_device, set_up
from transformer_mt.model.interface import TranslationModel
from transformer_mt.storage.run_folder import RunFolder


@dataclass(frozen=True)
class Candidate:
    """An entry of the vocabulary, and the probability that the model gives to it at the place of a mask."""

    id: int
    text: str
    probability: float


@dataclass(frozen=True)
class MaskedModel:
    """An encoder alone with its vocabulary, in evaluation mode and fp32."""

    config: RunConfig
    model: TranslationModel
    tokenizer: Tokenizer

    @classmethod
    def load(cls, run: RunFolder, checkpoint: str | None = None, device: str = "auto") -> "MaskedModel":
        """The model of a run. UserError as in `load_run`."""
        place = torch.device(choose_device(device).value)
        set_up(place)
        config, model, tokenizer, _, _ = load_run(run, checkpoint)
        return cls(config, model.to(place), tokenizer)

    @property
    def mask_id(self) -> int:
        """The entry that hides a word."""
        return self.tokenizer.encode("<mask_0>")[0]

    def ids(self, text: str) -> list[int]:
        """The ids of a text, each [MASK] in it one id. Punctuation that touches a mask is what it is beside a word.

        Raises UserError for a text that is blank, longer than the model's positions, or without the tag that the
        texts of its training had.
        """
        refuse_without_tag(text, self.config)
        stretches = text.split(MASK)
        ids = ids_around(stretches, [self.mask_id] * len(stretches), self.tokenizer)
        if not ids:
            raise UserError("The text is blank. Give at least one word.")
        if len(ids) + 1 > (positions := self.config.model.max_len):
            raise UserError(f"The text has {len(ids)} tokens, and the model reads {positions - 1}. Give a shorter one.")
        return ids

    @torch.inference_mode()
    def candidates(self, text: str, number: int) -> list[list[Candidate]]:
        """For each mask of the text, in order, the likeliest entries that stand for text, the best first. Each mask is
        filled by itself: the other ones stay hidden.

        Raises UserError as `ids` does, for a text without a mask, and where the model's output is not a number.
        """
        ids = [*self.ids(text), EOS_ID]
        places = [place for place, i in enumerate(ids) if i == self.mask_id]
        if not places:
            raise UserError(f"There is no {MASK} in the text. Put one where a word is to be found.")
        device = next(self.model.parameters()).device
        src = torch.tensor([ids], device=device)
        hidden = self.model.real_hidden_states(src, src, torch.tensor(places, device=device))
        probabilities = self.model.output(hidden).float().softmax(dim=-1).cpu()
        if probabilities.isnan().any():
            raise UserError("The model's output is not a number. Use an earlier checkpoint (--checkpoint step_N).")
        entries = torch.tensor(self.tokenizer.text_ids())
        best = probabilities[:, entries].topk(min(number, len(entries)))
        return [
            [Candidate(i, self._shown(i), p) for i, p in zip(entries[at].tolist(), values.tolist(), strict=True)]
            for at, values in zip(best.indices, best.values, strict=True)
        ]

    def _shown(self, i: int) -> str:
        """A word as it is written. A piece of a word has ▁ before it where it begins a word."""
        return self.tokenizer.tokens([i])[0] if self.tokenizer.knows_every_text else self.tokenizer.decode([i])
