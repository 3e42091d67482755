"""Mixture of experts in the place of a feed-forward (Shazeer et al. 2017; Jiang et al. 2024)."""

import torch
from torch import Tensor, nn

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.model.parts.feed_forward import FeedForward, make_dense
from transformer_mt.model.parts.layer_context import LayerContext, Routing


class MixtureOfExperts(nn.Module):
    """`num_experts` feed-forwards, of which a router gives each token `experts_per_token`. No token is dropped.

    A token's result is the sum of its experts' results, weighted as `choose_experts` says.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.experts_per_token = config.experts_per_token
        self.router = nn.Linear(config.d_model, config.num_experts, bias=False)
        self.experts = nn.ModuleList(make_dense(config) for _ in range(config.num_experts))

    def forward(self, x: Tensor, context: LayerContext | None = None) -> Tensor:
        """(..., d_model) -> the same shape. Where the context collects routing, this layer adds its loss."""
        tokens = x.flatten(0, -2)
        scores = self.router(tokens).float()  # (tokens, num_experts)
        chosen, weights = choose_experts(scores, self.experts_per_token)
        weights = weights.to(x.dtype)
        result = torch.zeros_like(tokens)
        for index, expert in enumerate(self.experts):
            token, place = (chosen == index).nonzero(as_tuple=True)
            result = result.index_add(0, token, (expert(tokens[token]) * weights[token, place, None]).to(x.dtype))
        if context is not None and context.routing is not None:
            real = torch.ones_like(tokens[:, 0], dtype=torch.bool) if context.real is None else context.real.flatten()
            context.routing.losses.append(load_balancing_loss(scores[real], chosen[real]))
        return result.view_as(x)


def choose_experts(scores: Tensor, experts_per_token: int) -> tuple[Tensor, Tensor]:
    """The experts with the highest scores, and their weights: the softmax over the scores of those chosen.

    A single expert is weighted by the softmax over all experts (Fedus et al. 2021, equation 2). A softmax over itself
    would be 1 whatever its score, and the router would learn nothing from the translation.

    scores (tokens, num_experts) -> (tokens, experts_per_token) both, best first.
    """
    top, chosen = scores.topk(experts_per_token, dim=-1)
    return chosen, top.softmax(dim=-1) if experts_per_token > 1 else scores.softmax(dim=-1).gather(-1, chosen)


def load_balancing_loss(scores: Tensor, chosen: Tensor) -> Tensor:
    """How unevenly tokens are spread: from 1, evenly, to num_experts (Fedus et al. 2021, equation 4).

    scores (tokens, num_experts), chosen (tokens, experts_per_token) -> num_experts * sum over experts of the
    expert's share of all choices times its mean probability. The gradient flows through the probabilities.
    """
    num_experts = scores.size(-1)
    share = torch.bincount(chosen.flatten(), minlength=num_experts) / max(chosen.numel(), 1)
    return num_experts * (share * scores.softmax(dim=-1).mean(dim=0)).sum()


def make_feed_forward(config: ModelConfig) -> FeedForward | MixtureOfExperts:
    """A dense feed-forward, or a mixture where the config has more than one expert."""
    return MixtureOfExperts(config) if config.num_experts > 1 else make_dense(config)


def mean_load_balancing(routing: Routing) -> Tensor:
    """The mean over layers of the losses that a pass collected."""
    return torch.stack(routing.losses).mean()
