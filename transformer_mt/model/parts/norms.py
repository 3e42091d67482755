"""Layer norms."""

from collections.abc import Callable

from torch import nn

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.model.option import Option

# LayerNorm (Ba et al. 2016): biased variance. RMSNorm (Zhang and Sennrich 2019): the mean square, no mean, no bias.
# In both, eps stands inside the root.
NORMS: dict[str, Option[Callable[[ModelConfig], nn.LayerNorm | nn.RMSNorm]]] = {
    "layernorm": Option(
        lambda config: nn.LayerNorm(config.d_model, eps=1e-5, bias=config.bias),
        {"rms_norm": False},
        "layer norm",
        huggingface={},  # transformers has this eps and no other in the models that we export to
    ),
    "rmsnorm": Option(lambda config: nn.RMSNorm(config.d_model, eps=1e-6), {"rms_norm": True}, "RMS norm"),
}


def make_norm(config: ModelConfig) -> nn.LayerNorm | nn.RMSNorm:
    """The config's norm over d_model."""
    return NORMS[config.norm].make(config)
