"""The picture that a validation shows: where the model looks as it predicts a reference."""

import numpy as np
from numpy.typing import NDArray

from transformer_mt.data.batches.batching import make_batch
from transformer_mt.data.preparation import TrainingData
from transformer_mt.inspect.attention import cross_attention, patches_drawn
from transformer_mt.inspect.heat_map import heat_map, to_pixels
from transformer_mt.model.interface import TranslationModel
from transformer_mt.training.validation import Sample

MAX_WORDS_DRAWN = 40


def attention_picture(model: TranslationModel, sample: Sample, data: TrainingData) -> NDArray[np.uint8]:
    """Draw where the last decoder layer looks as it predicts each word of a sample's reference: (height, width, 3)."""
    ids = (t.encode(text)[: min(model.config.max_len - 1, MAX_WORDS_DRAWN)]
           for t, text in ((data.src_tokenizer, sample.src), (data.tgt_tokenizer, sample.reference)))  # fmt: skip
    batch = make_batch(*([row] for row in ids)).to(next(model.parameters()).device)
    weights = cross_attention(model, batch.src, batch.tgt_in)
    patches = patches_drawn(batch.src[0], model)
    src_words = data.src_tokenizer.tokens(batch.src[0].tolist(), None if patches is None else sample.src)
    tgt_words = data.tgt_tokenizer.tokens(batch.tgt_out[0].tolist())
    return to_pixels(heat_map(weights, src_words, tgt_words, key_patches=patches))
