"""A model as the step function that search asks for."""

from torch import Tensor

from transformer_mt.model.cache import SearchCache
from transformer_mt.model.interface import TranslationModel


class ModelDecoder:
    """A model and the cache of one batch, as the step function that search asks for."""

    def __init__(self, model: TranslationModel, src: Tensor) -> None:
        self.model = model
        self.cache: SearchCache = model.start(src)

    def step(self, tokens: Tensor) -> Tensor:
        return self.model.decode_step(tokens, self.cache)

    def reorder(self, index: Tensor, sentences: Tensor | None = None) -> None:
        self.cache.reorder(index, sentences)
