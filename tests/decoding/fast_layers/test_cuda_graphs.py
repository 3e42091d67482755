"""A search over an arena, by steps that were recorded and are repeated, finds what a search finds that has neither."""

import pickle
from functools import partial
from typing import Any

import pytest
import torch
from languages import drop_as_on_a_gpu
from marks import slow
from recordings import BATCHES, Recording, Recordings, assert_same, begun, recordings_by
from searches import CPU, NORM, model_of, search, sources
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from toy import toy_pairs
from translators import MODELS_BY_NAME, make_translator, rules

from transformer_mt.config.sections.decoding import DecodingConfig
from transformer_mt.decoding.ensemble import Ensemble, EnsembleGraphs, decoder_of
from transformer_mt.decoding.fast_layers.cuda_graphs import GraphedDecoder, GraphedDecoders
from transformer_mt.decoding.model_decoder import ModelDecoder
from transformer_mt.decoding.search.greedy import StepFunction, greedy_search
from transformer_mt.decoding.search.options import search_options
from transformer_mt.decoding.search.rules import Demand, make_rules
from transformer_mt.errors import UserError
from transformer_mt.machine.cuda_graphs import CudaGraphs, Step

# A bias of each head, positions within attention, and slots of which few are seen.
CHOSEN = [("relative_bias, post-norm", 1), ("rotary, pre-norm", 1), ("short window, one stream", 3)]
GRAPHED = [
    name
    for name, model in MODELS_BY_NAME.items()
    if model.get("num_experts", 1) == 1 and model.get("architecture") != "rnn"
]


@pytest.mark.parametrize(
    ("name", "beam_size"), [*CHOSEN, *(slow(name, 3) for name in GRAPHED if (name, 3) not in CHOSEN)]
)
@torch.inference_mode()
def test_repeated_steps_find_what_a_search_without_them_finds(name: str, beam_size: int) -> None:
    model = model_of(name)
    decoders = GraphedDecoders(Recordings)
    captured = []
    for seed, (lengths, limits) in enumerate([*BATCHES, *[BATCHES[3]] * 4]):
        src = sources(model.output.out_features, lengths, min(seed, len(BATCHES)))
        expected = search(ModelDecoder(model, src), limits, beam_size)
        assert_same(search(begun(decoders, model, src, limits, beam_size), limits, beam_size), expected)
        captured.append(decoders.num_captured)
    assert captured[0] > 0
    assert captured[4] > captured[2], "sizes of before, on another arena"
    assert captured[8] == captured[7], "what came three times before is captured"


@pytest.mark.parametrize("scored", [slow(False), True])
@torch.inference_mode()
def test_repeated_choices_are_those_of_a_search_without_them(scored: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With rows that have ended and stay for a while, as on a GPU."""
    drop_as_on_a_gpu(monkeypatch)
    model = model_of("rotary, pre-norm")
    decoders = GraphedDecoders(Recordings)
    options = rules(norm=NORM).model_copy(update={"scored": scored})
    for seed in range(12):
        lengths, limits = BATCHES[seed % 3]
        src = sources(model.output.out_features, lengths, seed)
        expected = greedy_search(ModelDecoder(model, src), limits, options, CPU)
        found = greedy_search(begun(decoders, model, src, limits, 1), limits, options, CPU)
        assert [h.tokens for (h,) in found] == [h.tokens for (h,) in expected]
        pairs = [(mine.log_prob, its.log_prob) for (mine,), (its,) in zip(found, expected, strict=True)]
        assert all(its == pytest.approx(mine, rel=1e-4, nan_ok=not scored) for mine, its in pairs)
    assert decoders.num_captured > 4


@torch.inference_mode()
def test_a_search_with_rules_chooses_outside_of_the_repeated_steps() -> None:
    model = model_of("rotary, pre-norm")
    decoders = GraphedDecoders(Recordings)
    lengths, limits = BATCHES[0]
    src = sources(model.output.out_features, lengths, 0)
    own = make_rules(search_options(DecodingConfig(), no_repeat_ngram_size=1), limits, [Demand()] * 5, [], CPU)
    expected = greedy_search(ModelDecoder(model, src), limits, rules(norm=NORM), CPU, own)
    for _ in range(4):
        for options in (own, None):  # one after the other, over one arena
            found = greedy_search(begun(decoders, model, src, limits, 1), limits, rules(norm=NORM), CPU, options)
            if options is not None:
                assert_same(found, expected)
                assert all(len(set(h.tokens)) == len(h.tokens) for (h,) in found)


@torch.inference_mode()
def test_a_repeated_choice_among_what_is_no_number_is_refused() -> None:
    model = model_of("rotary, pre-norm")
    decoders = GraphedDecoders(Recordings)
    lengths, limits = BATCHES[0]
    src = sources(model.output.out_features, lengths, 0)
    for _ in range(4):
        search(begun(decoders, model, src, limits, 1), limits, 1)
    assert decoders.num_captured > 0
    model.output.weight.mul_(torch.nan)
    with pytest.raises(UserError, match="not a number"):
        search(begun(decoders, model, src, limits, 1), limits, 1)


@pytest.mark.parametrize("beam_size", [slow(1), 3])
@torch.inference_mode()
def test_an_ensemble_repeats_the_steps_of_each_model(beam_size: int) -> None:
    names = ("rotary, pre-norm", "learned, post-norm, one stream")
    ensemble = Ensemble([model_of(name) for name in names]).eval()
    graphs = EnsembleGraphs([GraphedDecoders(Recordings) for _ in names])
    lengths, limits = BATCHES[0]
    src = sources(ensemble.members[0].output.out_features, lengths, 1)
    expected = search(decoder_of(ensemble, src), limits, beam_size)
    for _ in range(4):
        decoder = graphs.begin(ensemble, src, max(limits), beam_size)
        assert decoder is not None
        assert_same(search(decoder, limits, beam_size), expected)
    assert all(each.num_captured > 0 for each in graphs.graphs)
    no_room = EnsembleGraphs([GraphedDecoders(Recordings), GraphedDecoders(lambda: Recordings(0))])
    assert no_room.begin(ensemble, src, max(limits), beam_size) is None


@torch.inference_mode()
def test_most_steps_are_repeated_and_sizes_are_few() -> None:
    """Twelve batches of one to 64 sentences, all of other lengths: no more graphs than powers of two allow."""
    model = model_of("rotary, pre-norm")
    repeated = 0

    class Counted(Recording):
        def __call__(self) -> Tensor:
            nonlocal repeated
            repeated += 1
            return super().__call__()

    decoders = GraphedDecoders(recordings_by(Counted))
    generator = torch.Generator().manual_seed(1)
    steps = 0
    for seed, size in enumerate((64, 50, 41, 33, 30, 22, 17, 9, 5, 3, 2, 1)):
        lengths = torch.randint(1, 20, (size,), generator=generator).tolist()
        limits = torch.randint(1, 24, (size,), generator=generator).tolist()
        src = sources(model.output.out_features, lengths, seed)
        decoder = begun(decoders, model, src, limits, 1)
        assert_same(search(decoder, limits, 1), search(ModelDecoder(model, src), limits, 1))
        assert isinstance(decoder, GraphedDecoder)
        steps += decoder.now.slots  # greedily one a step
    # Sentences 1 to 64: 7 powers; slots 16 and 32; sources 16 and 32.
    assert decoders.num_captured <= 7 * 2 * 2
    assert repeated > 0.5 * steps


class Ordered(TorchDispatchMode):
    """Counts the operations that are ordered one by one: all but those of a step that is repeated, and views, which
    compute nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.is_repeated = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += not self.is_repeated and not func.is_view
        return func(*args, **(kwargs or {}))


@torch.inference_mode()
def test_few_operations_of_a_search_are_ordered_one_by_one() -> None:
    """The benchmark's depth, 3 + 3 layers, greedily. More layers make more of a graph, and no more beside it."""
    model = model_of("sinusoidal, pre-norm", num_decoder_layers=3)
    ordered = Ordered()

    class Uncounted(Recording):
        def __call__(self) -> Tensor:
            ordered.is_repeated = True
            try:
                return super().__call__()
            finally:
                ordered.is_repeated = False

    src = sources(model.output.out_features, [8, 1, 5, 3, 8], 0)
    limits = [15] * 5
    decoders = GraphedDecoders(recordings_by(Uncounted))
    for _ in range(3):
        search(begun(decoders, model, src, limits, 1), limits, 1)

    def count(decoder: StepFunction) -> int:
        ordered.count = 0
        with ordered:
            search(decoder, limits, 1)
        return ordered.count

    graphed, eager = count(begun(decoders, model, src, limits, 1)), count(ModelDecoder(model, src))
    assert graphed < eager / 50, (graphed, eager)


@pytest.mark.parametrize(
    "asking",
    [
        lambda: torch.ones(int(torch.ones(()).item())),
        lambda: torch.ones(3)[torch.ones(3) > 0],
        lambda: torch.ones(3).nonzero(),
        lambda: torch.tensor([1.0, 2.0]) + 1,
    ],
)
@torch.inference_mode()
def test_what_asks_the_device_is_not_recorded(asking: Step) -> None:
    with pytest.raises(RuntimeError, match="not permitted"):
        Recording(asking)


@torch.inference_mode()
def test_where_nothing_can_be_captured_the_search_goes_on_and_says_so_once() -> None:
    model = model_of("learned, post-norm")
    asked = 0

    def broken(step: Step) -> Step:
        nonlocal asked
        asked += 1
        raise RuntimeError("CUDA error: operation not supported\nCUDA kernel errors might be")

    src, limits = sources(model.output.out_features, [5, 3], 1), [20, 20]
    expected = search(ModelDecoder(model, src), limits, 3)
    decoders = GraphedDecoders(recordings_by(broken))
    with pytest.warns(UserWarning, match="without CUDA graphs, which is slower: CUDA error: operation not supported$"):
        assert_same(search(begun(decoders, model, src, limits, 3), limits, 3), expected)
    assert decoders.begin(model, src, 20, 3) is None
    assert decoders.arena is None, "what nobody uses any more takes no memory"
    assert asked == 1
    assert decoders.num_captured == 0


@pytest.mark.parametrize(
    "changes",
    [{"beam_size": 3}, {"beam_size": 4, "diverse_beam_groups": 2, "n_best": 2}, {"temperature": 2.0, "n_best": 5}],
    ids=str,
)
def test_a_translator_over_an_arena_translates_alike_and_so_does_its_copy(changes: dict[str, Any]) -> None:
    plain, graphed = (make_translator(MODELS_BY_NAME["rotary, pre-norm"]) for _ in range(2))
    graphed.graphs = GraphedDecoders(Recordings)
    texts = [src for src, _ in toy_pairs(12)]
    options = search_options(plain.config.decoding, batch_size=12, **changes)  # in this process, not in workers
    expected = plain.translate_lines(texts, options)
    assert graphed.translate_lines(texts, options) == expected
    assert graphed.graphs.num_captured
    copy = pickle.loads(pickle.dumps(graphed))
    assert copy.graphs.num_captured == 0
    assert copy.translate_lines(texts, options) == expected


@pytest.mark.gpu
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("name", ["sinusoidal, pre-norm", "relative_bias, post-norm", "rotary, pre-norm, one stream"])
@torch.inference_mode()
def test_cuda_graphs_find_what_a_search_without_them_finds(name: str, beam_size: int) -> None:
    cuda = torch.device("cuda")
    model, find = model_of(name).to(cuda), partial(search, beam_size=beam_size, device=cuda)
    decoders = GraphedDecoders(partial(CudaGraphs, cuda))
    captured = 0
    for seed, (lengths, limits) in enumerate([*BATCHES, *BATCHES]):
        src = sources(model.output.out_features, lengths, seed).cuda()
        decoder = begun(decoders, model, src, limits, beam_size)
        assert_same(find(decoder, limits), find(ModelDecoder(model, src), limits))
        captured = max(captured, decoders.num_captured)
    assert not decoders.has_failed
    assert captured > 4


@pytest.mark.gpu
@torch.inference_mode()
def test_a_capture_that_fails_on_a_gpu_leaves_all_as_it_was() -> None:
    """The stream, random numbers, and the next object's captures."""
    cuda = torch.device("cuda")
    stream = torch.cuda.current_stream()
    with pytest.raises(RuntimeError):
        CudaGraphs(cuda)(lambda: torch.ones(int(torch.ones((), device=cuda).item()), device=cuda))
    assert torch.cuda.current_stream() == stream
    assert torch.rand(4, device=cuda).sum().item() > 0
    numbers = torch.zeros(4, device=cuda)
    repeat = CudaGraphs(cuda)(lambda: numbers.add_(1).clone())
    assert repeat().tolist() == [1.0] * 4
    assert repeat().tolist() == [2.0] * 4
