"""Chooses whether a search takes the passes that numba compiles."""

import torch
from torch import nn

from transformer_mt.decoding.fast_layers.find_kernels import step_kernels
from transformer_mt.decoding.fast_layers.panels.panel_layers import PanelDecoderLayer, PanelLinear

WORTH_LOADING = 512  # hypotheses; for fewer, loading numba takes longer than it saves: half a second, once
MOST_ALONE = 2**28  # products of a step that one core has done before several have begun


def are_compiled(model: nn.Module, num_batches: int, num_hypotheses: int, device: torch.device, precision: str) -> bool:
    """Whether the searches of a call take compiled passes, which this loads before processes are copies of this one.
    int8 has loaded numba in any case. A single batch has all cores, and the passes have one: it takes them where a step
    is so small that others would hardly help.
    """
    layers = [layer.in_panels for layer in model.modules() if isinstance(layer, PanelLinear | PanelDecoderLayer)]
    num_products = num_hypotheses * sum(layer.num_products for layer in layers)
    on_one_core = num_batches > 1 or torch.get_num_threads() == 1 or 0 < num_products <= MOST_ALONE
    is_worth_it = on_one_core and (precision == "int8" or num_hypotheses >= WORTH_LOADING)
    if device.type != "cpu" or not is_worth_it or step_kernels() is None:
        return False
    for layer in layers:
        if layer.passes() is not None:
            layer.lay_out()
    return True
