"""The export of a run to ONNX: `encoder.onnx`, `decoder_step.onnx`, and a runner that needs `onnxruntime` alone.

torch writes the graphs of the model's own layers, so that every option is computed by its own code.
"""

import logging
import shlex
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export import Dim

from transformer_mt.config.schema import RunConfig
from transformer_mt.config.sections.decoding import DecodingConfig
from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.config.sections.section import as_typed
from transformer_mt.config.special_ids import PAD_ID
from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.decoding.load_model import load_run
from transformer_mt.errors import UserError
from transformer_mt.export.card import EXAMPLE, Usage, model_card
from transformer_mt.export.expressible import all_refusals, not_obeyed, refuse_architecture, refuse_pictures
from transformer_mt.export.folder import refuse_occupied, save_description, write_folder
from transformer_mt.export.onnx.graphs import EncoderGraph, StepGraph
from transformer_mt.export.subwords import refuse_tags
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.transformer import Transformer
from transformer_mt.storage.checkpoint_files import stale_average
from transformer_mt.storage.run_folder import RunFolder

ENCODER, STEP = "encoder.onnx", "decoder_step.onnx"
RUNNER = "translate.py"
QUANTIZATIONS = ("int8",)
# The keys of `decoding` that the runner obeys, or that change no text of a greedy search. `beam_size` has a note.
OBEYED = {
    "beam_size", "length_penalty", "length_norm", "max_length_ratio", "max_length_extra", "min_length", "max_length",
    "patience", "allow_unk", "batch_size", "precision", "seed", "diverse_beam_strength",
}  # fmt: skip
MOST = 2**20  # torch 2.6 takes no size that may vary without an end; of products of two none may need 64 bits
_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
_USAGE = 'pip install onnxruntime\ncd {folder}\npython translate.py "{text}"'


def export_run(
    run: RunFolder, checkpoint: str | None, folder: Path, quantization: str | None = None, licence: str | None = None
) -> list[str]:
    """Write a run's checkpoint as ONNX into a new `folder`. Returns notes for the user.

    `checkpoint` is as in `find_checkpoint`; `quantization` is None or int8; `licence` stands on the card. Raises
    UserError where the model cannot be exported, with the key, where a package is missing, and where the folder is
    there and not empty.
    """
    refuse_occupied(folder)
    _check_quantization(quantization)
    _check_packages()
    config, model, src, tgt, taken = load_run(run, checkpoint)
    notes = search_notes(config.decoding)
    usage = Usage(_USAGE.format(folder=shlex.quote(folder.name), text=EXAMPLE), library="onnx", limits=notes)
    card = model_card(run, taken.name, licence, usage)
    write_model(model, src, tgt, config, folder, quantization, card)
    return [*filter(None, [stale_average(run, taken)]), *notes]


def write_model(
    model: TranslationModel,
    src: Tokenizer,
    tgt: Tokenizer,
    config: RunConfig,
    folder: Path,
    quantization: str | None = None,
    card: str | None = None,
) -> None:
    """`export_run` of a model in memory."""
    _check_quantization(quantization)
    _check_packages()
    all_refusals(
        lambda: refuse_inexpressible(config.model),
        lambda: refuse_tags(config.tokenizer, "the program beside the graphs"),
    )
    assert isinstance(model, Transformer)

    def write(temporary: Path) -> None:
        _write_graphs(model, temporary)
        if quantization is not None:
            _quantize(temporary)
        how_to = f"{RUNNER} beside this file translates; its source says how text becomes tokens."
        save_description(temporary, config, src, tgt, how_to=how_to, quantization=quantization or "float32")
        shutil.copyfile(Path(__file__).with_name("runner.py"), temporary / RUNNER)

    write_folder(folder, write, card)


def refuse_inexpressible(config: ModelConfig) -> None:
    """UserError, with the key, where there are no two such graphs."""
    refuse_pictures(config, "the program beside the graphs")
    refuse_architecture(config, ["encoder_decoder"], "the export to ONNX writes an encoder and a decoder")


def search_notes(decoding: DecodingConfig) -> list[str]:
    """A sentence for each key of `decoding` that the runner does not obey."""
    notes = [
        f"decoding.{key} is {as_typed(value)}, which {RUNNER} does not do: it translates without it."
        for key, value in not_obeyed(decoding, OBEYED).items()
    ]
    if decoding.beam_size > 1:
        notes.append(f"decoding.beam_size is {decoding.beam_size}, and {RUNNER} searches greedily.")
    return notes


def _check_quantization(quantization: str | None) -> None:
    if quantization is not None and quantization not in QUANTIZATIONS:
        raise UserError(
            f"{quantization!r} is not a quantization of ONNX. Use {', '.join(QUANTIZATIONS)}, or leave it out."
        )


def _check_packages() -> None:
    """UserError where one of the extra's packages is not installed."""
    for package in _PACKAGES:
        try:
            version(package)
        except PackageNotFoundError:
            raise UserError(
                f"{package} is not installed. Install what an export to ONNX needs with: pip install "
                f"{' '.join(_PACKAGES)}"
            ) from None


def _write_graphs(model: Transformer, folder: Path) -> None:
    """Both graphs; any number of sentences, of tokens of a source, and of tokens before the next one. To torch 2.9 a
    size that may be 1 is another case: it is told 2 and more, and the graphs take the others too.
    """
    batch, src_len, past_len = (Dim(name, min=2, max=MOST) for name in ("batch", "src_len", "past_len"))
    encoder, step = EncoderGraph(model).eval(), StepGraph(model).eval()
    with torch.no_grad():
        # Two of each and more, because torch takes a size of one for a constant.
        src = torch.tensor([[4, 5, 6, 3, PAD_ID], [5, 6, 7, 8, 3]])
        memory = encoder(src)
        past = [heads.new_zeros(2, heads.size(1), 3, heads.size(3)) for heads in memory]
        names = [f"{kind}_{layer}" for layer in range(len(memory) // 2) for kind in ("k", "v")]
        of_memory, of_past = {0: batch, 2: src_len}, {0: batch, 2: past_len}
        _write_graph(encoder, (src,), ({0: batch, 1: src_len},), ["src"], _named("memory", names), folder / ENCODER)
        _write_graph(
            step,
            (torch.tensor([4, 5]), src != PAD_ID, memory, past),
            ({0: batch}, {0: batch, 1: src_len}, [of_memory] * len(memory), [of_past] * len(past)),
            ["tokens", "src_mask", *_named("memory", names), *_named("past", names)],
            ["logits", *_named("present", names)],
            folder / STEP,
        )


def _named(what: str, names: list[str]) -> list[str]:
    return [f"{what}_{name}" for name in names]


def _write_graph(
    module: nn.Module, inputs: tuple, shapes: tuple, input_names: list[str], output_names: list[str], path: Path
) -> None:
    with _quiet():
        program: Any = torch.onnx.export(
            module, inputs, dynamo=True, dynamic_shapes=shapes, input_names=input_names, output_names=output_names,
            verbose=False,
        )  # fmt: skip
    assert program is not None
    program.save(path)


def _quantize(folder: Path) -> None:
    """The weights of linear maps and embeddings in 8 bits, in place."""
    from onnxruntime.quantization import QuantType, quantize_dynamic  # pyright: ignore[reportMissingImports]

    for name in (ENCODER, STEP):
        whole = folder / f"whole_{name}"
        (folder / name).rename(whole)
        with _quiet():
            quantize_dynamic(whole, folder / name, weight_type=QuantType.QInt8)
        whole.unlink()


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the libraries' remarks on their own insides."""
    levels = {name: logging.getLogger(name).level for name in ("torch.onnx", "root")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in levels:
            logging.getLogger(name).setLevel(logging.ERROR)
        try:
            yield
        finally:
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)
