"""The export of a run to CTranslate2, and translation with the exported model under the rules of our own search.

The folder has the files of CTranslate2 (model.bin, config.json, vocabularies), our tokenizers and
`transformer_mt.json`, so that it needs nothing else. CTranslate2 has no tokenizer: `transformer_mt.json` says how
tokens are made.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from transformer_mt.config.schema import RunConfig
from transformer_mt.config.sections.decoding import DecodingConfig, SearchConfig
from transformer_mt.config.sections.section import as_typed
from transformer_mt.config.sections.tokenizer import TokenizerConfig
from transformer_mt.config.special_ids import BOS_ID, EOS_ID, PAD_ID, SPECIAL_TOKENS
from transformer_mt.data.encoding import load_tokenizers
from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.decoding.demands import list_of_texts
from transformer_mt.decoding.load_model import load_run
from transformer_mt.decoding.search.options import SearchOptions, search_options
from transformer_mt.errors import UserError
from transformer_mt.model.interface import TranslationModel
from transformer_mt.storage.checkpoint_files import stale_average
from transformer_mt.storage.run_folder import RunFolder

try:
    import ctranslate2
    from ctranslate2.specs.model_spec import ACCEPTED_MODEL_TYPES
except ImportError as error:
    raise UserError(
        f"CTranslate2 is not installed ({error}). Install it with: pip install 'ctranslate2>=4.7'"
    ) from error

from transformer_mt.export.card import EXAMPLE, Usage, model_card
from transformer_mt.export.ctranslate2_spec import make_spec, refuse_inexpressible
from transformer_mt.export.expressible import all_refusals, not_obeyed, other_norm
from transformer_mt.export.folder import DESCRIPTION, TOKENIZERS, refuse_occupied, save_description, write_folder
from transformer_mt.export.subwords import refuse_languages

# The keys of `decoding` that ExportedTranslator obeys, in precision and batches by its own arguments. `seed` and
# `diverse_beam_strength` do nothing by themselves, and what they belong to is refused.
OBEYED = {
    "beam_size", "length_penalty", "length_norm", "max_length_ratio", "max_length_extra", "min_length", "max_length",
    "no_repeat_ngram_size", "patience", "allow_unk", "batch_size", "precision",
    "seed", "diverse_beam_strength",
}  # fmt: skip
_AGAIN = "Export the run again with `tmt export --to ctranslate2`."
_PAD, _, _BOS, _EOS = SPECIAL_TOKENS
_HOW_TO = {
    "encoder_decoder": (
        "Load the folder with ctranslate2.Translator. The tokens of a source text are those that tokenizers/src.json "
        f"makes of it; {_EOS} is added by CTranslate2 and the target begins with {_BOS}, both as config.json says."
    ),
    "decoder_only": (
        "Load the folder with ctranslate2.Generator. The prompt is the tokens that tokenizers/src.json makes of the "
        f"source text, then {_EOS}, then {_BOS}; pass include_prompt_in_result=False."
    ),
}
_HOW_TO_BOTH = (
    "Text is prepared before the tokenizer sees it: NFC, white space to single spaces, lower case where `tokenizer` "
    "says so, then words split (kind word) or one space before the first word (bpe, unigram). "
    "transformer_mt.export.ctranslate2.ExportedTranslator does all of this."
)

_USAGE = """\
from transformer_mt.export.ctranslate2 import ExportedTranslator
translator = ExportedTranslator({folder!r})
print(translator.translate([{text!r}], beam_size=1))"""


def export_run(
    run: RunFolder, checkpoint: str | None, folder: Path, quantization: str | None = None, licence: str | None = None
) -> list[str]:
    """Write a run's checkpoint for CTranslate2 into a new `folder`. Returns notes for the user.

    `checkpoint` is as in `find_checkpoint`; `quantization` is CTranslate2's name of a type, None for float32; `licence`
    stands on the card. Raises UserError where CTranslate2 cannot compute the model, with the key, and where the folder
    is there and not empty.
    """
    refuse_occupied(folder)
    check_quantization(quantization)
    config, model, src, tgt, taken = load_run(run, checkpoint)
    notes = search_notes(config.decoding)
    usage = Usage(_USAGE.format(folder=folder.name, text=EXAMPLE), "python", "ctranslate2", notes)
    card = model_card(run, taken.name, licence, usage)
    write_model(model, src, tgt, config, folder, quantization, taken.name, card)
    return [*filter(None, [stale_average(run, taken)]), *notes]


def search_notes(decoding: DecodingConfig) -> list[str]:
    """A sentence for each key of `decoding` that is set and that CTranslate2 does not know or means otherwise."""
    notes = other_norm(decoding, "CTranslate2", "ExportedTranslator wants length_penalty for it, or beam_size=1.")
    for key, value in not_obeyed(decoding, OBEYED).items():
        without = "ExportedTranslator refuses to search" if key in SearchConfig.model_fields else "it translates"
        notes.append(f"decoding.{key} is {as_typed(value)}, which CTranslate2 does not do: {without} without it.")
    return notes


def write_model(
    model: TranslationModel,
    src: Tokenizer,
    tgt: Tokenizer,
    config: RunConfig,
    folder: Path,
    quantization: str | None = None,
    checkpoint: str | None = None,
    card: str | None = None,
) -> None:
    """`export_run` of a model in memory; `checkpoint` is only noted."""
    check_quantization(quantization)
    all_refusals(lambda: refuse_inexpressible(config.model), lambda: refuse_languages(config, "CTranslate2"))
    spec = make_spec(model, vocabulary(src), vocabulary(tgt))
    spec.validate()
    spec.optimize(quantization)
    architecture = config.model.architecture

    def write(temporary: Path) -> None:
        spec.save(str(temporary))
        save_description(
            temporary, config, src, tgt, how_to=f"{_HOW_TO[architecture]} {_HOW_TO_BOTH}", checkpoint=checkpoint,
            quantization=quantization or "float32", architecture=architecture,
        )  # fmt: skip

    write_folder(folder, write, card)


class ExportedTranslator:
    """A model that `tmt export --to ctranslate2` wrote, with our tokenizers and, as far as CTranslate2 has them, our
    rules.

    PAD and BOS are never generated, nor is UNK unless the run allows it. The length of a hypothesis counts EOS, and it
    is limited as in our search. CTranslate2 differs in four points. Its length norm is `average`. It divides the
    probability of tokens that are never generated among the others. A sentence ends when `beam_size` hypotheses are
    finished, however good the live ones are. A hypothesis at its largest length is scored without EOS, not with a
    forced one.
    """

    def __init__(
        self, folder: str | Path, threads: int = 0, compute_type: str = "default", device: str = "cpu", workers: int = 1
    ) -> None:
        """`threads` compute a batch, 0 for CTranslate2's default; `workers` batches are computed at once.
        `compute_type` and `device` have CTranslate2's names.

        Raises UserError where the folder was not written by an export, or CTranslate2 cannot load it with these
        settings.
        """
        folder = Path(folder)
        config, self.decoding, self.max_len, self.decoder_only = _read_description(folder)
        self.src_tokenizer, self.tgt_tokenizer = load_tokenizers(folder / TOKENIZERS, config, _AGAIN)
        self._src_vocabulary = vocabulary(self.src_tokenizer)
        self._tgt_ids = {token: i for i, token in enumerate(vocabulary(self.tgt_tokenizer))}
        engine: Any = ctranslate2.Generator if self.decoder_only else ctranslate2.Translator
        torch_threads = torch.get_num_threads()
        try:
            self.engine = engine(
                str(folder), device=device, compute_type=compute_type, intra_threads=threads, inter_threads=workers
            )
        except (RuntimeError, ValueError) as error:
            raise UserError(
                f"CTranslate2 cannot load {folder}: {error}. Check the device and the compute type, or export again."
            ) from error
        finally:
            # Loading changes the threads of OpenMP, which torch shares; CTranslate2 has made its own threads by now.
            torch.set_num_threads(torch_threads)

    def src_tokens(self, ids: Sequence[int]) -> list[str]:
        """The input tokens of a source's ids. An encoder-decoder adds EOS itself."""
        tokens = [self._src_vocabulary[i] for i in ids]
        return [*tokens, _EOS, _BOS] if self.decoder_only else tokens

    def translate(
        self,
        texts: Sequence[str],
        beam_size: int | None = None,
        length_penalty: float | None = None,
        max_batch_size: int | None = None,
    ) -> list[str]:
        """One text for each text, in order; blank for a blank text and for one longer than the model's positions.

        length_penalty is the alpha of `length_norm: average`, the only length norm of CTranslate2. max_batch_size
        counts sentences. None stands for the value of the run's config; UserError where the config has a beam under
        another length norm.
        """
        options = search_options(
            self.decoding, beam_size=beam_size, length_penalty=length_penalty, batch_size=max_batch_size
        )
        if options.norm.kind != "average" and length_penalty is None and options.norm.alpha and options.beam_size > 1:
            raise UserError(
                f"decoding.length_norm is {options.norm.kind}, and CTranslate2 has only average. Pass length_penalty "
                "for it, 1 for the mean log-probability or 0 for none, or beam_size=1."
            )
        self._refuse_unknown(options)
        rows = self.src_tokenizer.encode_batch(list_of_texts(texts))
        lengths = {i: len(row) + 1 for i, row in enumerate(rows) if 0 < len(row) < self.max_len}
        limits = {i: options.largest_length(length, self.max_len) for i, length in lengths.items()}
        batches = _batches(lengths, options.batch_size, same=lengths if self.decoder_only else None)
        found = self._search(rows, batches, limits, options)
        if options.beam_size > 1:
            # A batch has one largest length. Greedy text is cut below; a beam is searched again under its own.
            late = [(i, batch) for batch in batches for i in batch if len(found[i]) >= limits[i]]
            again = {i: lengths[i] for i, batch in late if limits[i] < max(limits[j] for j in batch)}
            found |= self._search(rows, _batches(again, options.batch_size, limits), limits, options)
        # A hypothesis without EOS is cut where our search would force one.
        return [self.tgt_tokenizer.decode(found[i][: limits[i] - 1]) if i in found else "" for i in range(len(rows))]

    @staticmethod
    def _refuse_unknown(options: SearchOptions) -> None:
        """Raise UserError for a key of the section `decoding` that is set and has no counterpart here."""
        for key, value in not_obeyed(options, OBEYED).items():
            raise UserError(
                f"decoding.{key} is {as_typed(value)}, which CTranslate2 does not do. Translate with tmt, "
                "or take it out of the config and export again."
            )

    def _search(
        self, rows: list[list[int]], batches: list[list[int]], limits: dict[int, int], options: SearchOptions
    ) -> dict[int, list[int]]:
        """Ids of each sentence of the batches, all of which CTranslate2 is given at once."""
        begun = [
            (batch, self._start([self.src_tokens(rows[i]) for i in batch], max(limits[i] for i in batch), options))
            for batch in batches
        ]
        return {
            i: self._ids(result.result()) for batch, results in begun for i, result in zip(batch, results, strict=True)
        }

    def _start(self, batch: list[list[str]], max_length: int, options: SearchOptions) -> list[Any]:
        shared = {
            "asynchronous": True,
            "beam_size": options.beam_size,
            "length_penalty": options.norm.alpha,
            "disable_unk": not options.allow_unk,
            "no_repeat_ngram_size": options.no_repeat_ngram_size,
            "patience": options.patience,
            "suppress_sequences": [[_PAD], [_BOS]],
            "return_end_token": True,  # so that the length in the score counts EOS
        }
        min_length = min(options.min_length, max_length - 1)  # the largest length, which has EOS, is the stronger one
        if self.decoder_only:
            lengths = {"max_length": max_length, "min_length": min_length}
            return self.engine.generate_batch(batch, include_prompt_in_result=False, **lengths, **shared)
        lengths = {"max_decoding_length": max_length, "min_decoding_length": min_length}
        return self.engine.translate_batch(batch, max_input_length=0, **lengths, **shared)

    def _ids(self, result: Any) -> list[int]:
        tokens = (result.sequences if self.decoder_only else result.hypotheses)[0]
        return [self._tgt_ids[token] for token in tokens if token != _EOS]


def _batches(lengths: dict[int, int], size: int, same: dict[int, int] | None = None) -> list[list[int]]:
    """Sentences in batches of similar length, the longest first. A batch holds only sentences that agree in `same`.

    CTranslate2 would make batches too, but give sentences of all lengths one largest length.
    """
    batches: list[list[int]] = []
    for i in sorted(lengths, key=lambda i: (lengths[i], same[i] if same else 0), reverse=True):
        last = batches[-1] if batches else []
        if last and len(last) < size and (same is None or same[i] == same[last[0]]):
            last.append(i)
        else:
            batches.append([i])
    return batches


def vocabulary(tokenizer: Tokenizer) -> list[str]:
    """The tokens in the order of their ids. They are keys of a dictionary, so none is there twice."""
    by_id = {i: token for token, i in tokenizer.backend.get_vocab().items()}
    assert sorted(by_id) == list(range(tokenizer.vocab_size)), "ids without a gap"
    assert (by_id[PAD_ID], by_id[BOS_ID], by_id[EOS_ID]) == (_PAD, _BOS, _EOS)
    return [by_id[i] for i in range(len(by_id))]


def check_quantization(quantization: str | None) -> None:
    """UserError where CTranslate2 has no such type."""
    if quantization is not None and quantization not in ACCEPTED_MODEL_TYPES:
        raise UserError(f"{quantization!r} is not a quantization. Use one of {', '.join(ACCEPTED_MODEL_TYPES)}.")


def _read_description(folder: Path) -> tuple[TokenizerConfig, DecodingConfig, int, bool]:
    """Tokenizer and search of the run, the positions of a side, and whether the model is decoder-only."""
    path = folder / DESCRIPTION
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
        return (
            TokenizerConfig.model_validate(description["tokenizer"]),
            DecodingConfig.model_validate(description["decoding"]),
            int(description["max_len"]),
            description["architecture"] == "decoder_only",
        )
    except OSError as error:
        reason = error.strerror or str(error)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        first, *_ = str(error).split("\n")
        reason = f"it is damaged ({first})"
    raise UserError(
        f"{path} cannot be used: {reason}. Give a folder that `tmt export --to ctranslate2` wrote, or write it again."
    )
