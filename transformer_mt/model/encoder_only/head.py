"""The head of an encoder alone, before its output projection: that of masked words (Devlin et al. 2019)."""

from torch import Tensor, nn

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.model.parts.norms import make_norm


class PredictionHead(nn.Module):
    """norm(gelu(dense(x))), whatever the activation of the layers."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.d_model, config.d_model, bias=config.bias)
        self.activation = nn.GELU()
        self.norm = make_norm(config)

    def forward(self, x: Tensor) -> Tensor:
        """x (…, d_model) -> the same shape."""
        # Under autocast the linear map returns fewer digits than x has, of which torch's RMSNorm warns.
        return self.norm(self.activation(self.dense(x)).to(x.dtype))
