"""The export of a run to `transformers`: a folder that its Auto classes read, with nothing of ours.

A post-norm model becomes a MarianMTModel, a pre-norm one a PegasusForConditionalGeneration.
"""

import json
from pathlib import Path
from typing import Any

from transformer_mt.config.schema import RunConfig
from transformer_mt.config.sections.decoding import DecodingConfig
from transformer_mt.config.sections.section import as_typed
from transformer_mt.config.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.decoding.load_model import load_run
from transformer_mt.export.card import EXAMPLE, Usage, model_card
from transformer_mt.export.expressible import all_refusals, not_obeyed, other_norm
from transformer_mt.export.folder import refuse_occupied, write_folder
from transformer_mt.export.huggingface.tokenizer import save_tokenizer
from transformer_mt.export.huggingface.weights import model_settings, refuse_inexpressible, weights_of
from transformer_mt.export.subwords import refuse_tokenizer
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.transformer import Transformer
from transformer_mt.storage.checkpoint_files import stale_average
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.storage.weights import save_tensors

# The keys of `decoding` that generation_config.json holds, or that change no text there. `length_norm` and the largest
# length of a source have notes of their own; `seed` and `diverse_beam_strength` do nothing by themselves.
OBEYED = {
    "beam_size", "length_penalty", "length_norm", "min_length", "max_length", "no_repeat_ngram_size", "allow_unk",
    "max_length_ratio", "max_length_extra", "batch_size", "precision", "seed", "diverse_beam_strength",
}  # fmt: skip

_USAGE = """\
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
tokenizer, model = (auto.from_pretrained({folder!r}) for auto in (AutoTokenizer, AutoModelForSeq2SeqLM))
print(tokenizer.batch_decode(model.generate(**tokenizer([{text!r}], return_tensors="pt")), skip_special_tokens=True))"""


def export_run(run: RunFolder, checkpoint: str | None, folder: Path, licence: str | None = None) -> list[str]:
    """Write a run's checkpoint for `transformers` into a new `folder`. Returns notes for the user.

    `checkpoint` is as in `find_checkpoint`, `licence` stands on the card. Raises UserError where `transformers` cannot
    compute the model, with the keys, and where the folder is there and not empty.
    """
    refuse_occupied(folder)
    config, model, src, _, taken = load_run(run, checkpoint)
    notes = search_notes(config.decoding)
    usage = Usage(_USAGE.format(folder=folder.name, text=EXAMPLE), "python", "transformers", notes)
    write_model(model, src, config, folder, model_card(run, taken.name, licence, usage))
    return [*filter(None, [stale_average(run, taken)]), *notes]


def write_model(
    model: TranslationModel, tokenizer: Tokenizer, config: RunConfig, folder: Path, card: str | None = None
) -> None:
    """`export_run` of a model in memory; the tokenizer is that of both sides."""
    all_refusals(lambda: refuse_inexpressible(config.model), lambda: refuse_tokenizer(config.tokenizer, "transformers"))
    assert isinstance(model, Transformer)
    weights = weights_of(model)
    files = {
        "config.json": model_settings(config, tokenizer.vocab_size),
        "generation_config.json": generation_settings(config.decoding, config.model.max_len),
    }

    def write(temporary: Path) -> None:
        save_tensors(weights, temporary / "model.safetensors", {"format": "pt"})
        save_tokenizer(temporary, tokenizer, config.model.max_len)
        for name, content in files.items():
            (temporary / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    write_folder(folder, write, card)


def generation_settings(decoding: DecodingConfig, max_len: int) -> dict[str, Any]:
    """The content of generation_config.json: the rules of our search that `generate` has too."""
    longest = max_len if decoding.max_length is None else min(max_len, decoding.max_length + 1)
    of_beam = {"length_penalty": decoding.length_penalty, "early_stopping": False}  # not for greedy search: a warning
    return {
        "num_beams": decoding.beam_size,
        **(of_beam if decoding.beam_size > 1 else {}),
        "max_length": longest + 1,  # BOS counted, and EOS
        "min_new_tokens": decoding.min_length,
        "no_repeat_ngram_size": decoding.no_repeat_ngram_size,
        "suppress_tokens": [PAD_ID, *([] if decoding.allow_unk else [UNK_ID]), BOS_ID],
        "do_sample": False,
        "pad_token_id": PAD_ID,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "decoder_start_token_id": BOS_ID,
        "forced_eos_token_id": EOS_ID,  # at the largest length, as in our search
    }


def search_notes(decoding: DecodingConfig) -> list[str]:
    """A sentence for each key of `decoding` that `generate` does not obey."""
    notes = [
        f"decoding.{key} is {as_typed(value)}, which transformers does not do: the exported model translates without "
        "it."
        for key, value in not_obeyed(decoding, OBEYED).items()
    ]
    notes += other_norm(decoding, "transformers")
    notes.append(
        f"decoding.max_length_ratio is {decoding.max_length_ratio}, and transformers limits a translation by a fixed "
        "number of tokens alone, whatever its source."
    )
    return notes
