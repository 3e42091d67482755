"""The life of a sentence in a trained model: every vector and weight that it computes, and each step of its search.

Collected by forward hooks; the model is the one that translates and computes the same numbers. The search runs first,
greedy and over the cache; then the whole of its translation goes through the model once more, as in training, which
gives every position's vectors at once.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from transformer_mt.config.special_ids import BOS_ID, EOS_ID
from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.decoding.options import search_options
from transformer_mt.decoding.search import greedy_search
from transformer_mt.decoding.translator import ModelDecoder, Translator
from transformer_mt.inspect.attention import looks_at_source, recorded_attention
from transformer_mt.inspect.flops import flops_by_part
from transformer_mt.inspect.sentence_pair import sentence_ids
from transformer_mt.inspect.sizes import parameters_by_part, residual_census, stacks_of, sublayers_of
from transformer_mt.model.experts import MixtureOfExperts, choose_experts
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.stack import Stack

NUM_BEST = 5  # next tokens that a step shows


@dataclass(frozen=True)
class ExpertsTrace:
    """Which experts each token was given, the highest score first, and how they were weighted: (length,
    experts_per_token) both.
    """

    chosen: Tensor
    weights: Tensor


@dataclass(frozen=True)
class SublayerTrace:
    """One residual connection; vectors are (length, d_model).

    `norm_position` is `pre`: normed = norm(input), sum = input + added; or `post`: sum = input + added, normed =
    norm(sum). `output` goes on: the sum in the one case, the normed sum in the other. `weights` are an attention's,
    (num_heads, length, keys), the keys being the memory's in `cross_attn`.
    """

    name: str
    norm_position: str
    input: Tensor
    normed: Tensor
    added: Tensor
    sum: Tensor
    output: Tensor
    weights: Tensor | None
    experts: ExpertsTrace | None


@dataclass(frozen=True)
class StackTrace:
    """An encoder or a decoder; vectors are (length, d_model).

    `scaled` is embedding * sqrt(d_model). `position` is None where nothing is added to the embedding. `output` is
    behind the final norm, where there is one: of an encoder, the memory.
    """

    name: str
    ids: list[int]
    tokens: list[str]
    embedding: Tensor
    scaled: Tensor
    position: Tensor | None
    sum: Tensor
    layers: list[list[SublayerTrace]]
    final_norm: bool
    output: Tensor


@dataclass(frozen=True)
class Candidate:
    """A token that may come next, with the probability that the model gives it."""

    id: int
    token: str
    probability: float


@dataclass(frozen=True)
class StepTrace:
    """One step of the search: what was fed, the likeliest next tokens, which one was taken, and the place in the source
    that the last layer attended to most, over the mean of its heads; None where its window holds no source.
    """

    fed: str
    best: list[Candidate]
    taken: Candidate
    source_position: int | None
    source_weight: float


@dataclass(frozen=True)
class Trace:
    """All of it. `logits` (tgt_len, vocab_size) are those of the whole pass; `positions` and `norm` are the config's
    kinds; `parameters`, `shared_parameters` and `flops` go by part, `residuals` by stack and layer.
    """

    sentence: str
    translation: str
    positions: str
    norm: str
    src_tokens: list[str]
    stacks: list[StackTrace]
    logits: Tensor
    steps: list[StepTrace]
    residuals: dict[str, list[int]]
    parameters: dict[str, int]
    shared_parameters: dict[str, str]
    flops: dict[str, int]


@torch.inference_mode()
def trace(translator: Translator, sentence: str) -> Trace:
    """What `translator` does with one sentence under greedy search, in fp32.

    Raises UserError where the sentence is blank or longer than the model's positions.
    """
    model = translator.model
    assert not model.training, "dropout would change the numbers"
    row = sentence_ids("The sentence", sentence, translator.src_tokenizer, translator)
    found, step_logits = _search(translator, row)
    src = torch.tensor([[*row, EOS_ID]], device=translator.device)
    tgt_in = torch.tensor([[BOS_ID, *found]], device=translator.device)
    with recorded_attention(model) as weights, recorded_calls(model) as calls:
        logits = model(src, tgt_in)[0].cpu()
    tokenizers = {"encoder": translator.src_tokenizer, "decoder": translator.tgt_tokenizer}
    stacks = [_stack(name, stack, calls, weights, tokenizers[name]) for name, stack in stacks_of(model).items()]
    parameters, shared = parameters_by_part(model)
    return Trace(
        sentence=sentence,
        translation=translator.tgt_tokenizer.decode(found),
        positions=model.config.positions,
        norm=model.config.norm,
        src_tokens=translator.src_tokenizer.tokens(src[0].tolist()),
        stacks=stacks,
        logits=logits,
        steps=_steps(translator.tgt_tokenizer, found, step_logits, looks_at_source(model, weights, src, tgt_in)),
        residuals=residual_census(model),
        parameters=parameters,
        shared_parameters=shared,
        flops=flops_by_part(model, src.size(1), tgt_in.size(1)),
    )


# What modules computed


@dataclass(frozen=True)
class Call:
    """What a module was given last, and what it made of it."""

    inputs: tuple[Any, ...]
    output: Any


@contextmanager
def recorded_calls(model: nn.Module) -> Iterator[dict[str, Call]]:
    """While inside, every call of a module is kept under its name; a later call takes the place of an earlier one."""
    calls: dict[str, Call] = {}

    def record(name: str):
        def hook(module: nn.Module, inputs: tuple, output: Any) -> None:
            calls[name] = Call(inputs, output)

        return hook

    handles = [module.register_forward_hook(record(name)) for name, module in model.named_modules()]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _stack(
    name: str, stack: Stack, calls: dict[str, Call], weights: dict[str, Tensor], tokenizer: Tokenizer
) -> StackTrace:
    ids, at = calls[f"{name}.embedder"].inputs
    positions = calls[f"{name}.embedder.positions"]
    scaled, position = positions.inputs[0], None
    if positions.output is not scaled:
        position = stack.embedder.positions.forward(torch.zeros_like(scaled), at)  # what is added to nothing
    layers = [
        [_sublayer(f"{name}.layers.{index}", sublayer, layer, calls, weights) for sublayer, _ in sublayers_of(layer)]
        for index, layer in enumerate(stack.layers)
    ]
    return StackTrace(
        name=name,
        ids=ids[0].tolist(),
        tokens=tokenizer.tokens(ids[0].tolist()),
        embedding=stack.embedder.embedding.weight[ids[0]].cpu(),
        scaled=scaled[0].cpu(),
        position=None if position is None else position[0].cpu(),
        sum=positions.output[0].cpu(),
        layers=layers,
        final_norm=calls[f"{name}.norm"].output is not calls[f"{name}.norm"].inputs[0],
        output=calls[name].output[0].cpu(),
    )


def _sublayer(
    path: str, name: str, layer: nn.Module, calls: dict[str, Call], weights: dict[str, Tensor]
) -> SublayerTrace:
    residual, norm = calls[f"{path}.{name}_residual"], calls[f"{path}.{name}_residual.norm"]
    pre = norm.inputs[0] is residual.inputs[0]
    attention, module = weights.get(f"{path}.{name}"), layer.get_submodule(name)
    experts = None
    if isinstance(module, MixtureOfExperts):
        scores = calls[f"{path}.{name}.router"].output.float()
        experts = ExpertsTrace(*(part.cpu() for part in choose_experts(scores, module.experts_per_token)))
    return SublayerTrace(
        name=name,
        norm_position="pre" if pre else "post",
        input=residual.inputs[0][0].cpu(),
        normed=norm.output[0].cpu(),
        added=calls[f"{path}.{name}_residual.dropout"].output[0].cpu(),
        sum=(residual.output if pre else norm.inputs[0])[0].cpu(),
        output=residual.output[0].cpu(),
        weights=None if attention is None else attention[0].cpu(),
        experts=experts,
    )


# The search


class _RecordingDecoder(ModelDecoder):
    """A step function that keeps the logits of every step."""

    def __init__(self, model: TranslationModel, src: Tensor) -> None:
        super().__init__(model, src)
        self.logits: list[Tensor] = []

    def step(self, tokens: Tensor) -> Tensor:
        self.logits.append(super().step(tokens))
        return self.logits[-1]


def _search(translator: Translator, row: list[int]) -> tuple[list[int], list[Tensor]]:
    """The tokens that greedy search finds, without EOS, and the logits (vocab_size,) of its every step."""
    options = search_options(translator.config.decoding, beam_size=1)
    src = torch.tensor([[*row, EOS_ID]], device=translator.device)
    decoder = _RecordingDecoder(translator.model, src)
    limit = options.max_length(src.size(1), translator.config.model.max_len)
    ((hypothesis,),) = greedy_search(decoder, [limit], options.norm, options.allow_unk, translator.device)
    return hypothesis.tokens, [logits[0] for logits in decoder.logits]


def _steps(tokenizer: Tokenizer, found: list[int], step_logits: list[Tensor], looks: Tensor) -> list[StepTrace]:
    steps = []
    for fed, taken, logits, look in zip([BOS_ID, *found], [*found, EOS_ID], step_logits, looks, strict=True):
        probabilities = logits.float().softmax(dim=-1).cpu()

        def candidate(token: int, probabilities: Tensor = probabilities) -> Candidate:
            return Candidate(token, tokenizer.tokens([token])[0], float(probabilities[token]))

        best = probabilities.topk(min(NUM_BEST, len(probabilities))).indices.tolist()
        weight, place = look.max(dim=0)
        steps.append(
            StepTrace(
                fed=tokenizer.tokens([fed])[0],
                best=[candidate(token) for token in best],
                taken=candidate(taken),
                source_position=int(place) if weight > 0 else None,
                source_weight=float(weight),
            )
        )
    return steps
