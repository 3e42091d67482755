"""A sentence on its way through a trained model: every vector and weight, and each step of the search.

Forward hooks collect them, so the numbers are those with which the model translates. The search of the config runs
first. Its translation is then fed once more, token by token over the cache, for the probabilities of each step. At last
the whole translation goes through the model as in training, which gives the vectors of all positions at once.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from transformer_mt.config.sections.decoding import DecodingConfig
from transformer_mt.config.special_ids import BOS_ID, EOS_ID
from transformer_mt.data.batches.batching import pad_sources
from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.decoding.model_decoder import ModelDecoder
from transformer_mt.decoding.search.options import SearchOptions, search_options
from transformer_mt.decoding.translator import Translator
from transformer_mt.inspect.attention import looks_at_source, recorded_attention
from transformer_mt.inspect.flops import flops_by_part
from transformer_mt.inspect.hooks import hooked
from transformer_mt.inspect.part_sizes import parameters_by_part, residual_census, stacks_of, sublayers_of
from transformer_mt.inspect.recurrent_trace import recurrent_stacks
from transformer_mt.inspect.sentence_pair import options_of, own_translation, sentence_ids
from transformer_mt.inspect.stack_trace import ExpertsTrace, StackTrace, SublayerTrace
from transformer_mt.model.parts.experts import MixtureOfExperts, choose_experts
from transformer_mt.model.recurrent.rnn import Rnn
from transformer_mt.model.stack import Stack

NUM_BEST = 5  # a step shows so many next tokens


@dataclass(frozen=True)
class Candidate:
    """A token that may come next, and its probability."""

    id: int
    token: str
    probability: float


@dataclass(frozen=True)
class StepTrace:
    """One step of the search: the token fed, the likeliest next tokens, and the token taken. `source_position` is the
    place in the source that the heads of the last layer attend to most, on average; None where the attention window
    holds no source.
    """

    fed: str
    best: list[Candidate]
    taken: Candidate
    source_position: int | None
    source_weight: float


@dataclass(frozen=True)
class Trace:
    """The whole trace. `translation` is the best hypothesis of a search of `beam_size`, 1 for greedy. `logits`
    (tgt_len, vocab_size) are those of the pass over the whole translation. `positions` and `norm` are the options of
    the config, which say nothing of a recurrent network. `parameters`, `shared_parameters` and `flops` go by part,
    `residuals` by stack and layer.
    """

    sentence: str
    translation: str
    beam_size: int
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
    """Trace one sentence through the model of `translator`, under its config's search, in fp32.

    Raises UserError where the sentence is blank or longer than the model's positions, and as `own_translation`.
    """
    model = translator.model
    assert not model.training, "dropout would change the numbers"
    row = sentence_ids("The sentence", sentence, translator.src_tokenizer, translator)
    options = _options_of_beam(translator.config.decoding)
    found, step_logits = _search(translator, row, options)
    src = pad_sources([row]).to(translator.device)
    tgt_in = torch.tensor([[BOS_ID, *found]], device=translator.device)
    with recorded_attention(model) as weights, recorded_calls(model) as calls:
        logits = model(src, tgt_in)[0].cpu()
    tokenizers = {"encoder": translator.src_tokenizer, "decoder": translator.tgt_tokenizer}
    if isinstance(model, Rnn):
        stacks = recurrent_stacks(model, src, tgt_in, weights, tokenizers)
    else:
        stacks = [
            _stack(name, stack, calls, weights, tokenizers[name], sentence) for name, stack in stacks_of(model).items()
        ]
    parameters, shared = parameters_by_part(model)
    flops = flops_by_part(model, src.size(1), tgt_in.size(1))
    return Trace(
        sentence=sentence,
        translation=translator.tgt_tokenizer.decode(found),
        beam_size=options.beam_size,
        positions=model.config.positions,
        norm=model.config.norm,
        src_tokens=translator.src_tokenizer.tokens(src[0].tolist(), sentence),
        stacks=stacks,
        logits=logits,
        steps=_steps(translator.tgt_tokenizer, found, step_logits, looks_at_source(model, weights, src, tgt_in)),
        residuals=residual_census(model),
        parameters={**parameters, **{part: 0 for part in flops if part not in parameters}},
        shared_parameters=shared,
        flops=flops,
    )


# What modules computed


@dataclass(frozen=True)
class Call:
    """The inputs and the output of a module's last call."""

    inputs: tuple[Any, ...]
    output: Any


@contextmanager
def recorded_calls(model: nn.Module) -> Iterator[dict[str, Call]]:
    """While inside, the last call of every module is kept under the name of the module."""
    calls: dict[str, Call] = {}

    def record(name: str, module: nn.Module, inputs: tuple, output: Any) -> None:
        calls[name] = Call(inputs, output)

    with hooked(model.named_modules(), record):
        yield calls


def _stack(
    name: str, stack: Stack, calls: dict[str, Call], weights: dict[str, Tensor], tokenizer: Tokenizer, sentence: str
) -> StackTrace:
    ids, at, *_ = calls[f"{name}.embedder"].inputs
    is_drawn = ids.dim() > 2
    positions = calls[f"{name}.embedder.positions"]
    scaled, position = positions.inputs[0], None
    if positions.output is not scaled:
        position = stack.embedder.positions.forward(torch.zeros_like(scaled), at)  # added to zeros: the position alone
    layers = [
        [_sublayer(f"{name}.layers.{index}", sublayer, layer, calls, weights) for sublayer, _ in sublayers_of(layer)]
        for index, layer in enumerate(stack.layers)
    ]
    return StackTrace(
        name=name,
        ids=list(range(1, ids.size(1) + 1)) if is_drawn else ids[0].tolist(),  # patches have numbers alone
        tokens=tokenizer.tokens(ids[0].tolist(), sentence if is_drawn else None),
        embedding=stack.embedder.embedding(ids)[0].cpu(),
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
    assert pre or residual.output is norm.output, "a residual that norms neither what goes in nor what comes out"
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


def _options_of_beam(decoding: DecodingConfig) -> SearchOptions:
    """As `tmt translate` searches, but a config that asks for samples is traced through its beam."""
    return search_options(decoding, beam_size=decoding.beam_size) if decoding.is_sampling else options_of(decoding)


def _search(translator: Translator, row: list[int], options: SearchOptions) -> tuple[list[int], list[Tensor]]:
    """The tokens that the search finds, without EOS, and the logits (vocab_size,) of each step, with that of EOS."""
    tokens = own_translation(translator, row, options)
    decoder = ModelDecoder(translator.model, pad_sources([row]).to(translator.device))
    fed = torch.tensor([[BOS_ID, *tokens]], device=translator.device)
    return tokens, [decoder.step(token)[0] for token in fed.unbind(dim=1)]


def candidates(
    tokenizer: Tokenizer, probabilities: Tensor, taken: int, number: int = NUM_BEST
) -> tuple[list[Candidate], Candidate]:
    """The likeliest tokens by probabilities (vocab_size,), and the one that was taken."""

    def candidate(token: int) -> Candidate:
        return Candidate(token, tokenizer.tokens([token])[0], float(probabilities[token]))

    best = probabilities.topk(min(number, len(probabilities))).indices.tolist()
    return [candidate(token) for token in best], candidate(taken)


def _steps(tokenizer: Tokenizer, found: list[int], step_logits: list[Tensor], looks: Tensor) -> list[StepTrace]:
    steps = []
    for fed, taken, logits, look in zip([BOS_ID, *found], [*found, EOS_ID], step_logits, looks, strict=True):
        best, chosen = candidates(tokenizer, logits.float().softmax(dim=-1).cpu(), taken)
        weight, place = look.max(dim=0)
        steps.append(
            StepTrace(
                fed=tokenizer.tokens([fed])[0],
                best=best,
                taken=chosen,
                source_position=int(place) if weight > 0 else None,
                source_weight=float(weight),
            )
        )
    return steps
