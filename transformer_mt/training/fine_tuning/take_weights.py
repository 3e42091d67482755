"""The weights of a finished run, put into a fresh model."""

import torch

from transformer_mt.errors import UserError
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.named_parts import also_meant, parameters_of
from transformer_mt.storage.checkpoint_files import WEIGHTS
from transformer_mt.storage.manifest import check_manifest
from transformer_mt.storage.weights import read_tensors
from transformer_mt.training.fine_tuning.source_run import KEY, OTHER_CHECKPOINT, SourceRun, told_by_key


def take_weights(model: TranslationModel, source: SourceRun) -> None:
    """Write the run's weights over those of the fresh model, as far as they are to be taken, and say so in a line.

    Where the vocabulary was extended, the rows of its new entries stay as the fresh model has them. Raises UserError,
    with the name of the weight and both shapes, where one does not fit, and where the checkpoint is gone meanwhile.
    """
    # Preparing the data may have taken long, in which a run that still trains deletes its older checkpoints.
    told_by_key(lambda: check_manifest(source.checkpoint, [WEIGHTS], OTHER_CHECKPOINT))
    there = read_tensors(source.checkpoint / WEIGHTS)
    taken = parameters_of(model, source.parts, f"{KEY}.parts")
    by_row = parameters_of(model, ["embeddings", "output"], KEY) if source.asked.vocabulary == "extend" else {}
    with torch.no_grad():
        for name, parameter in taken.items():
            old = there.get(name)
            grown = name in by_row and old is not None and len(old) <= len(parameter)
            if old is None or old.shape != (len(old) if grown else len(parameter), *parameter.shape[1:]):
                was, now = "missing" if old is None else tuple(old.shape), tuple(parameter.shape)
                raise UserError(
                    f"{KEY}: {name} is {was} in {source.checkpoint} and {now} in the model of this config with the "
                    f"tokenizers of that run. Restore the files of {source.run.path}, or leave the part out."
                )
            parameter[: len(old)].copy_(old)
    print(f"weights: those of {source.run.path}, {source.checkpoint.name}{_parts(model, source, taken)}")


def _parts(model: TranslationModel, source: SourceRun, taken: dict) -> str:
    if source.asked.parts is None:
        return ""
    tied = also_meant(model, source.parts, taken)
    more = f" (and so {', '.join(tied)}, by model.tie_embeddings: {model.config.tie_embeddings})" if tied else ""
    return f", of it {', '.join(source.parts)}{more}; the rest is fresh from the seed"
