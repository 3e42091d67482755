"""The optimizer: Adam, or with weight decay AdamW (Loshchilov and Hutter 2019), where it is no part of the gradient."""

import torch
from torch import nn

from transformer_mt.config.sections.training import TrainingConfig
from transformer_mt.model.named_parts import trained


def make_optimizer(model: nn.Module, config: TrainingConfig, device: torch.device) -> torch.optim.Optimizer:
    """Adam over all parameters that are not frozen, in the model's order. With `weight_decay` those that decay come in
    a group before the rest. The rate is set before each step.
    """
    beta1, beta2 = config.adam_betas
    # The fused kernel goes over the memory once, the loop over parameters a dozen times.
    fused = device.type in ("cpu", "cuda")
    parameters = list(trained(model).values())
    if not config.weight_decay:
        return torch.optim.Adam(parameters, lr=0.0, betas=(beta1, beta2), eps=config.adam_eps, fused=fused)
    decayed = decaying(model)
    groups = [
        {"params": [p for p in parameters if id(p) in decayed], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if id(p) not in decayed], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.0, betas=(beta1, beta2), eps=config.adam_eps, fused=fused)


def decaying(model: nn.Module) -> set[int]:
    """The ids of the parameters that decay: weights of linear maps. Norms and biases do not, nor do embeddings, also
    where the output projection is one: a rare word gets few gradients, and would fade.
    """
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    linear = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear)}
    cells = (module.parameters() for module in model.modules() if isinstance(module, nn.RNNBase))
    return (linear | {id(part) for parameters in cells for part in parameters if part.dim() == 2}) - embeddings
