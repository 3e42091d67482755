"""The position-wise part of a layer: a feed-forward, plain or gated."""

from collections.abc import Callable

from torch import Tensor, nn

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.model.gpu.dropout import draws_for
from transformer_mt.model.gpu.relu_dropout import linear_relu_dropout
from transformer_mt.model.option import Option
from transformer_mt.model.parts.dropout import Dropout, ReluDropout
from transformer_mt.model.parts.layer_context import LayerContext
from transformer_mt.model.parts.linears import product


def _inner_dropout(config: ModelConfig) -> float:
    """The probability of a feed-forward's inner dropout."""
    return config.dropout if config.activation_dropout is None else config.activation_dropout


class FeedForward(nn.Module):
    """Two linear maps with an activation between, position by position (Vaswani et al. 2017, section 3.3)."""

    def __init__(self, config: ModelConfig, activation: nn.Module) -> None:
        super().__init__()
        self.in_proj = nn.Linear(config.d_model, config.d_ff, config.bias)
        self.activation = activation
        self.dropout = Dropout(_inner_dropout(config))
        self.out_proj = nn.Linear(config.d_ff, config.d_model, config.bias)

    def forward(self, x: Tensor, context: LayerContext | None = None, biased: bool = True) -> Tensor:
        """(..., d_model) -> the same shape. The context is for experts, which may stand in this place; `biased`: see
        `linears.product`.
        """
        return product(self.out_proj, self.dropout(self.activation(self.in_proj(x))), biased)


class ReluFeedForward(FeedForward):
    """The same where the activation is relu, which is one operation with the dropout behind it."""

    def __init__(self, config: ModelConfig, activation: nn.Module) -> None:
        super().__init__(config, activation)
        self.dropout = ReluDropout(_inner_dropout(config))

    def forward(self, x: Tensor, context: LayerContext | None = None, biased: bool = True) -> Tensor:
        """(..., d_model) -> the same shape."""
        if self.training and draws_for(x):
            return product(self.out_proj, linear_relu_dropout(x, self.in_proj, self.dropout.p), biased)
        return product(self.out_proj, self.dropout(self.in_proj(x)), biased)


class GatedFeedForward(FeedForward):
    """Three linear maps: the activation of one multiplies another (Shazeer 2020). `d_ff` is the inner size."""

    def __init__(self, config: ModelConfig, activation: nn.Module) -> None:
        super().__init__(config, activation)
        self.gate_proj = nn.Linear(config.d_model, config.d_ff, config.bias)

    def forward(self, x: Tensor, context: LayerContext | None = None, biased: bool = True) -> Tensor:
        """(..., d_model) -> the same shape."""
        return product(self.out_proj, self.dropout(self.activation(self.gate_proj(x)) * self.in_proj(x)), biased)


# Of CTranslate2's three kinds of GELU, GELU is the exact one; of those of transformers it is gelu.
ACTIVATIONS: dict[str, Option[Callable[[ModelConfig], FeedForward]]] = {
    "relu": Option(
        lambda config: ReluFeedForward(config, nn.ReLU()),
        {"activation": "RELU", "ffn_glu": False},
        huggingface={"activation_function": "relu"},
    ),
    "gelu": Option(
        lambda config: FeedForward(config, nn.GELU()),
        {"activation": "GELU", "ffn_glu": False},
        huggingface={"activation_function": "gelu"},
    ),
    "swiglu": Option(lambda config: GatedFeedForward(config, nn.SiLU()), {"activation": "SWISH", "ffn_glu": True}),
    "geglu": Option(lambda config: GatedFeedForward(config, nn.GELU()), {"activation": "GELU", "ffn_glu": True}),
}


def make_dense(config: ModelConfig) -> FeedForward:
    """The feed-forward of the config's activation: a layer's own, or one of its experts."""
    return ACTIVATIONS[config.activation].make(config)
