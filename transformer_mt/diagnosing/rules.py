"""The table of rules: what each diagnosis is called, when it is judged, what it needs, and what to try."""

from collections.abc import Callable
from dataclasses import dataclass

from transformer_mt.diagnosing.history import Finding, History
from transformer_mt.diagnosing.loss import loss_spike, lr_too_high, lr_too_low
from transformer_mt.diagnosing.machine import data_wait, slow_machine
from transformer_mt.diagnosing.outputs import copying, empty_outputs, length_drift, repeating_outputs
from transformer_mt.diagnosing.validation import overfitting
from transformer_mt.diagnosing.weights import dead_heads, saturated_attention, unmoved_embeddings


@dataclass(frozen=True)
class Rule:
    """`find`, named as the diagnosis, judges a history whose newest entry is of one of `kinds`, by this and earlier
    entries alone. So a training and a reader of its records find the same.

    `needs` are figures by kind: where no entry has one of them, the rule cannot be judged.
    """

    kinds: tuple[str, ...]
    find: Callable[[History], Finding | None]
    needs: tuple[tuple[str, str], ...]
    what: str
    tries: str


RULES = {rule.find.__name__: rule for rule in (
    Rule(("spike",), loss_spike, (("recorder", ""),),
         "the loss of one update stands out from those before it",
         "Look at these pairs in the data (`tmt data check` finds more of their kind). If they are fine, lower "
         "training.lr or training.factor, lengthen training.warmup_steps, or lower training.clip_norm."),
    Rule(("train", "look"), lr_too_high, (("train", "nll"),),
         "the loss rose from its lowest and stays, is far above chance, or is stuck while the weights change a lot",
         "Lower training.lr or training.factor to a third or a tenth, lengthen training.warmup_steps, or set "
         "model.norm_position: pre. What was trained since the lowest loss is lost: begin anew."),
    Rule(("look",), lr_too_low, (("train", "nll"), ("look", "relative_update")),
         "the loss is about where it began, and the weights hardly change",
         "Raise training.lr or training.factor tenfold; look whether training.warmup_steps and the schedule fit the "
         "number of steps."),
    Rule(("look",), dead_heads, (("look", "contributions"),),
         "attention heads that add nothing to their layer",
         "Lower model.num_heads, the learning rate, or training.weight_decay. Where the weights come from another run "
         "(training.init_from), look whether it had these heads."),
    Rule(("look",), saturated_attention, (("look", "sharpness"),),
         "most heads give all weight to one word, so that next to no gradient reaches their queries and keys",
         "Lower training.lr or training.factor, lengthen training.warmup_steps, or set model.norm_position: pre, and "
         "train anew."),
    Rule(("look",), unmoved_embeddings, (("look", "unmoved"),),
         "most rows of a table of embeddings have had no gradient",
         "Lower tokenizer.vocab_size, raise tokenizer.min_frequency, or check that data.train is the text that the "
         "vocabulary was learned from."),
    Rule(("validation",), overfitting, (("validation", "nll"), ("train", "nll")),
         "the validation's nll rises while that of the training falls",
         "Add data, raise model.dropout, train a smaller model, try the regularisers of docs/training.md "
         "(training.consistency, model.src_word_dropout), or stop earlier with validation.patience. The best "
         "checkpoint is kept."),
    Rule(("look",), copying, (("look", "copies"),),
         "translations that are their source",
         "Look for pairs whose target is the source: `tmt data check` counts them, and with --write takes them out."),
    Rule(("look",), empty_outputs, (("look", "empty"),),
         "translations without a word",
         "Look for targets without words or far too short in data.train (`tmt data check`), and at "
         "decoding.length_penalty."),
    Rule(("look",), repeating_outputs, (("look", "repeating"),),
         "translations that repeat themselves, or are all the same",
         "Look for such targets in data.train (`tmt data check` names repetitions) and for shifted lines. Else train "
         "longer or on more data."),
    Rule(("look",), length_drift, (("look", "length_ratio"),),
         "translations far shorter or longer than the references",
         "Look for cut or joined lines in data.train (`tmt data check` names lengths out of the ordinary), and whether "
         "the validation is text of the same kind."),
    Rule(("train",), data_wait, (("train", "data_wait"),),
         "the steps wait for their batches",
         "Put data.cache_dir on a local disk, leave a core to the thread that makes batches, or raise "
         "training.max_tokens; without data.streaming nothing is read while training."),
    Rule(("train",), slow_machine, (("train", "tokens_per_second"),),
         "the steps became much slower than they were",
         "Look at what else runs on this machine (top, nvidia-smi), at its temperature and at its swap. Ctrl-C saves, "
         "and `tmt train --resume auto` goes on later."),
)}  # fmt: skip
