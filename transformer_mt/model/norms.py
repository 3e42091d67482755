"""Layer norms."""

from torch import nn

from transformer_mt.config.schema import ModelConfig

# LayerNorm (Ba et al. 2016): biased variance. RMSNorm (Zhang and Sennrich 2019): the mean square, no mean, no bias.
# In both, eps stands inside the root.
NORMS = {
    "layernorm": lambda config: nn.LayerNorm(config.d_model, eps=1e-5, bias=config.bias),
    "rmsnorm": lambda config: nn.RMSNorm(config.d_model, eps=1e-6),
}


def make_norm(config: ModelConfig) -> nn.LayerNorm | nn.RMSNorm:
    """The config's norm over d_model."""
    return NORMS[config.norm](config)
