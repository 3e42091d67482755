"""What a validation looks at beside its scores: how heads attend and what they add, and how weights move."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from transformer_mt.config.schema import RunConfig
from transformer_mt.config.special_ids import BOS_ID, SPECIAL_TOKENS
from transformer_mt.data.batches.batching import pad_sources
from transformer_mt.data.preparation import TrainingData
from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.inspect.hooks import hooked
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.named_parts import trained
from transformer_mt.model.parts.attention import Attention, MultiHeadAttention
from transformer_mt.model.parts.positions import Positions
from transformer_mt.training.updates import Updater
from transformer_mt.training.validation import ValidationResult

MOST_TOKENS = 64  # of a side of a sample
FIRST_QUERY = 3  # queries before it have few keys in a decoder, so that their weights are great whatever they are
DIGITS = 4
NUM_BYTES = 256

Heads = dict[str, list[float]]  # a figure of each head, by the name of the module


def look(
    config: RunConfig, model: TranslationModel, updater: Updater, data: TrainingData, result: ValidationResult
) -> dict[str, Any]:
    """The figures of an entry `look`: of the samples of a validation, read by the `model` that was validated, and of
    the weights that are trained. Draws nothing, changes nothing.
    """
    pairs = [
        [tokenizer.encode(text)[: min(model.config.max_len - 1, MOST_TOKENS)]
         for tokenizer, text in ((data.src_tokenizer, sample.src), (data.tgt_tokenizer, sample.reference))]
        for sample in result.samples
    ]  # fmt: skip
    figures: dict[str, Any] = {"vocabulary": data.tgt_tokenizer.vocab_size, **result.outputs}
    if pairs:
        sharpness, contributions = heads_on(model, pairs)
        figures |= {"sharpness": sharpness, "contributions": contributions or None}
    if updater.sharing.whole_optimizer:
        num_given = max(map(_num_given, (data.src_tokenizer, data.tgt_tokenizer)))
        figures["relative_update"] = _rounded(relative_update(updater.model, updater.optimizer))
        unmoved = unmoved_rows(updater.model, updater.optimizer, num_given, config.tokenizer.joint)
        figures["unmoved"] = unmoved if every_word_comes(config) else None
    return figures


@torch.inference_mode()
def heads_on(model: TranslationModel, pairs: list[list[list[int]]]) -> tuple[Heads, Heads]:
    """Of each head on these pairs of ids the mean of its greatest weight, and the size of what it adds to its layer,
    as a share of the size of the layer's input: both root mean squares. A recurrent network has only the first.
    """
    device = next(model.parameters()).device
    sharpness, contributions = defaultdict(list), defaultdict(list)
    for src, tgt in pairs:
        with _measured(model) as (weights, sizes):
            model.hidden_states(pad_sources([src]).to(device), torch.tensor([[BOS_ID, *tgt]], device=device))
        for name, found in weights.items():
            whole = torch.cat(found, dim=2)[0].float()
            if whole.size(1) > FIRST_QUERY < whole.size(2):
                sharpness[name].append(whole[:, FIRST_QUERY:].amax(dim=2).mean(dim=1))
        for name, size in sizes.items():
            contributions[name].append(size)
    return _means(sharpness), _means(contributions)


@contextmanager
def _measured(model: nn.Module) -> Iterator[tuple[dict[str, list[Tensor]], dict[str, Tensor]]]:
    """While inside, a full pass adds the weights of every attention, and the contributions of its heads, by module."""
    weights: dict[str, list[Tensor]] = defaultdict(list)
    sizes: dict[str, Tensor] = {}

    def measure(name: str, module: Attention, inputs: tuple) -> None:
        found = module.weights_of(inputs)
        weights[name].append(found)
        if isinstance(module, MultiHeadAttention):
            sizes[name] = contribution_of(module, inputs, found)

    attentions = [(name, module) for name, module in model.named_modules() if isinstance(module, Attention)]
    with hooked(attentions, measure, before=True):
        yield weights, sizes


def contribution_of(module: MultiHeadAttention, inputs: tuple, weights: Tensor) -> Tensor:
    """The size of what each head adds, as a share of that of the query: (num_heads,)."""
    query, key_value = inputs[:2]
    values = module.project_key_value(key_value)[1].repeat_interleave(module.num_heads // module.num_kv_heads, dim=1)
    heads = (weights @ values)[0].float()  # (num_heads, query_len, head_dim)
    parts = module.out_proj.weight.float().unflatten(1, (module.num_heads, -1))  # (d_model, num_heads, head_dim)
    added = torch.einsum("hqd,mhd->hqm", heads, parts)
    return added.square().mean(dim=(1, 2)).sqrt() / query.float().square().mean().sqrt().clamp(min=1e-12)


@torch.no_grad()
def relative_update(model: nn.Module, optimizer: torch.optim.Optimizer) -> float | None:
    """The size of Adam's newest step of a matrix as a share of the size of the matrix, the median over all but
    embeddings. None before the first step.
    """
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    rates = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    ratios = []
    for weight in trained(model).values():
        state = optimizer.state.get(weight)
        if weight.dim() != 2 or id(weight) in embeddings or not state:
            continue
        group, steps = rates[id(weight)], state["step"].to(weight.device)
        beta1, beta2 = group["betas"]
        first, second = state["exp_avg"] / (1 - beta1**steps), state["exp_avg_sq"] / (1 - beta2**steps)
        step = first / (second.sqrt() + group["eps"])
        ratios.append(group["lr"] * step.norm() / weight.norm().clamp(min=1e-12))
    return median(torch.stack(ratios).tolist()) if ratios else None


def every_word_comes(config: RunConfig) -> bool:
    """Whether an epoch brings every word of the vocabulary. Where sources have shares, it need not bring all pairs, and
    another run's vocabulary was learned from other text.
    """
    begun = config.training.init_from
    keeps = begun is not None and (begun.keeps_src or begun.keeps_tgt)
    shares = config.data.temperature is not None or any(source.weight is not None for source in config.data.train)
    return not (keeps or shares)


@torch.no_grad()
def unmoved_rows(
    model: nn.Module, optimizer: torch.optim.Optimizer, num_given: int, joint: bool
) -> dict[str, float] | None:
    """Of each table of embeddings that is trained the share of rows whose gradient was always 0, at least: `num_given`
    rows, of entries that a vocabulary has whatever its text, may be among them and do not count. Tables of positions
    are left out: a position that no sentence reaches is nobody's mistake. None before the first step. A row without a
    gradient for thousands of steps counts too, since Adam forgets. Where two tables are of one `joint` vocabulary, a
    word that only one language has moves in one of them, and a row counts where it has moved in neither.
    """
    of_positions = {part for module in model.modules() if isinstance(module, Positions) for part in module.modules()}
    tables = {
        name: optimizer.state.get(module.weight)
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding) and module not in of_positions
    }
    unmoved = {name: state["exp_avg_sq"].amax(dim=1) == 0 for name, state in tables.items() if state}
    if joint and unmoved:
        if len(unmoved) < len(tables):  # one is frozen
            return None
        unmoved = dict.fromkeys(unmoved, torch.stack(list(unmoved.values())).all(dim=0))
    return {
        name: round(max(0, int(rows.sum()) - num_given) / max(1, len(rows) - num_given), DIGITS)
        for name, rows in unmoved.items()
    } or None


def _num_given(tokenizer: Tokenizer) -> int:
    """Entries that its vocabulary has whatever the text: special ones, tags, and the bytes of subwords."""
    return len(SPECIAL_TOKENS) + len(tokenizer.tags) + (NUM_BYTES if tokenizer.knows_every_text else 0)


def _means(found: dict[str, list[Tensor]]) -> Heads:
    return {name: [_rounded(x) for x in torch.stack(sizes).mean(dim=0).tolist()] for name, sizes in found.items()}


def _rounded(value: float | None) -> Any:
    return None if value is None else float(f"{value:.{DIGITS}g}")
