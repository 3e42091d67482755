"""The export of a run as a package of Argos Translate, which LibreTranslate runs: a zip archive with the model for
CTranslate2, the tokenizer for SentencePiece, and a description.
"""

import json
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from transformer_mt.config.language_names import name_of
from transformer_mt.config.schema import RunConfig
from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.decoding.load_model import load_run
from transformer_mt.errors import UserError
from transformer_mt.export.argos.sentencepiece_model import piece_of, sentencepiece_model
from transformer_mt.export.card import CARD, Usage, model_card
from transformer_mt.export.ctranslate2 import check_quantization, vocabulary
from transformer_mt.export.ctranslate2_spec import make_spec, refuse_inexpressible
from transformer_mt.export.expressible import all_refusals
from transformer_mt.export.subwords import refuse_tokenizer
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.parts.positions import POSITIONS, sinusoidal_table
from transformer_mt.paths import exists, is_dir
from transformer_mt.storage.checkpoint_files import stale_average
from transformer_mt.storage.files import make_file, writing
from transformer_mt.storage.run_folder import RunFolder

ENDING = ".argosmodel"
MOST_TOKENS = 1025  # of a source as CTranslate2 cuts it, and EOS
NOTES = (
    "Argos Translate searches by its own rules, a beam of 4 with CTranslate2's length norm, and not by the keys of "
    "`decoding`. It cuts text into sentences first, and writes a space for every underscore.",
)
_USAGE = """\
from argostranslate import package, translate
package.install_from_path({file!r})
print(translate.translate({text!r}, {src!r}, {tgt!r}))"""


def export_run(
    run: RunFolder, checkpoint: str | None, file: Path, quantization: str | None = None, licence: str | None = None
) -> list[str]:
    """Write a run's checkpoint as a new `file` for Argos Translate. Returns notes for the user.

    `checkpoint` is as in `find_checkpoint`; `quantization` is CTranslate2's name of a type, None for float32; `licence`
    stands on the card. Raises UserError where the format cannot hold the model, with the keys, and where the file is
    there or has another ending.
    """
    _refuse_file(file)
    check_quantization(quantization)
    config, model, src, _, taken = load_run(run, checkpoint)
    languages = {"src": config.data.src_lang, "tgt": config.data.tgt_lang}
    code = _USAGE.format(file=file.name, text="A sentence.", **languages)
    card = model_card(run, taken.name, licence, Usage(code, "python", "argostranslate", NOTES))
    write_model(model, src, config, file, quantization, card)
    return [*filter(None, [stale_average(run, taken)]), *NOTES]


def write_model(
    model: TranslationModel,
    tokenizer: Tokenizer,
    config: RunConfig,
    file: Path,
    quantization: str | None = None,
    card: str | None = None,
) -> None:
    """`export_run` of a model in memory; the tokenizer is that of both sides."""
    _refuse_file(file)
    check_quantization(quantization)
    all_refusals(
        lambda: refuse_inexpressible(
            config.model, ["encoder_decoder"], "Argos Translate runs an encoder and a decoder"
        ),
        lambda: refuse_tokenizer(config.tokenizer, "SentencePiece"),
    )
    entries = vocabulary(tokenizer)
    pieces = [piece_of(entry) for entry in entries]
    spec = make_spec(model, pieces, pieces)
    _lengthen_positions(spec, config.model)
    spec.validate()
    spec.optimize(quantization)
    src, tgt = config.data.src_lang, config.data.tgt_lang
    description = {
        "package_version": "1.0",
        "argos_version": "1.5",
        "from_code": src,
        "from_name": name_of(src),
        "to_code": tgt,
        "to_name": name_of(tgt),
    }
    backend = json.loads(tokenizer.backend.to_str())["model"]

    def write(temporary: Path) -> None:
        """The archive, with the model's own folder beside it while it is made."""
        folder = f"translate-{src}_{tgt}-1_0".replace("/", "_")  # one folder, or the package cannot be installed
        beside = tempfile.TemporaryDirectory(dir=file.parent, prefix=f"{temporary.name}-")  # a kill leaves it there
        with beside as made, zipfile.ZipFile(temporary, "w") as archive:
            spec.save(made)
            for path in sorted(Path(made).iterdir()):
                archive.write(path, f"{folder}/model/{path.name}", zipfile.ZIP_DEFLATED)
            archive.writestr(
                f"{folder}/sentencepiece.model", sentencepiece_model(entries, backend), zipfile.ZIP_DEFLATED
            )
            archive.writestr(f"{folder}/metadata.json", json.dumps(description, ensure_ascii=False, indent=1) + "\n")
            if card is not None:
                archive.writestr(f"{folder}/{CARD}", card)

    with writing(file, "Choose another place."):
        make_file(file, write)


def _lengthen_positions(spec: Any, config: ModelConfig) -> None:
    """Positions beyond the model's own. Argos Translate gives CTranslate2 sources of up to 1,024 tokens, and lets a
    translation that does not end grow to 256; past the table CTranslate2 would fail. Within the model's positions
    nothing changes. Sinusoids go on by their formula, and any other kind with its last vector.
    """
    if POSITIONS[config.positions].ctranslate2 or config.max_len >= MOST_TOKENS:
        return
    for stack in (spec.encoder, spec.decoder):
        table = stack.position_encodings.encodings
        longer = np.pad(table, ((0, MOST_TOKENS - len(table)), (0, 0)), mode="edge")
        if config.positions == "sinusoidal":
            longer[len(table) :] = sinusoidal_table(MOST_TOKENS, config.d_model)[len(table) :].numpy()
        stack.position_encodings.encodings = longer


def _refuse_file(file: Path) -> None:
    """UserError where the export would replace something, or Argos Translate would not take the file."""
    if is_dir(file):
        raise UserError(f"{file} is a folder. Name a new file, for example {file / ('model' + ENDING)}.")
    if file.suffix != ENDING:
        raise UserError(f"{file} does not end in {ENDING}. Name the file {file.with_name(file.name + ENDING)}.")
    if exists(file) or file.is_symlink():
        raise UserError(f"{file} exists. Name another, or delete it first.")
