"""The numbers by which rules judge, each with its reason. Healthy runs stay clear of all of them."""

from typing import NamedTuple


class Threshold(NamedTuple):
    """A number and why it is this one."""

    value: float
    reason: str


THRESHOLDS = {
    "spike_window": Threshold(
        50, "updates that say what is usual, and before the first judgement: enough to hold an easy and a hard batch"
    ),
    "spike_spreads": Threshold(
        8, "robust deviations above the median: batches of like length differ more than chance would have it"
    ),
    "spike_rise": Threshold(1.0, "nats above the median, so that a loss that hardly varies may vary"),
    "spike_excess": Threshold(
        2, "times the largest rise so far that was none: batches of the shortest sentences recur once an epoch"
    ),
    "spike_memory": Threshold(0.999, "of that rise is left after an update: some epochs of a small corpus"),
    "spike_tokens": Threshold(0.5, "of the usual target tokens: the last update of an epoch may be of a few pairs"),
    "line": Threshold(20, "updates in a line of the log; of lines of fewer, so many make one: single updates jump"),
    "lines": Threshold(5, "lines of the log whose median is the loss now: single lines jump"),
    "rise": Threshold(0.5, "nats above the lowest median: lines of healthy runs stay within 0.2 of it"),
    "rise_share": Threshold(0.15, "of the lowest median, where that is high: 0.5 nats of 9 are soon lost and regained"),
    "beyond_chance": Threshold(2.0, "times ln V: a model begins near ln V, and one of other text is at 1.5 at most"),
    "stuck_lines": Threshold(10, "lines without progress, beyond a pause in learning"),
    "progress": Threshold(0.05, "nats that a loss must fall within them"),
    "stuck_loss": Threshold(0.5, "of ln V: what is better than that has learned more than how frequent words are"),
    "high_update": Threshold(0.03, "of a weight's size a step: usual are 0.0001 to 0.01"),
    "low_update": Threshold(0.0001, "of a weight's size a step: 10,000 steps would hardly change the weights"),
    "low_loss": Threshold(0.7, "of ln V, where a model begins: what has begun to learn is below"),
    "dead_head": Threshold(0.001, "of the size of a layer's input, added by a head: untrained heads add 0.05 and more"),
    "sharp_head": Threshold(0.99, "mean of the greatest weight: softmax passes next to no gradient on from there"),
    "sharp_heads": Threshold(0.5, "of all heads: single heads that look at one word are healthy"),
    "unmoved_rows": Threshold(0.5, "of a table of embeddings: a vocabulary learned from the same text uses nearly all"),
    "overfit_rise": Threshold(0.1, "nats of the validation's nll above its lowest"),
    "overfit_share": Threshold(0.05, "of its lowest, where that is high"),
    "overfit_validations": Threshold(3, "validations since the lowest, so that one bad one is none"),
    "overfit_bleu": Threshold(1.0, "points of BLEU gained since: then the translations still get better"),
    "learned_loss": Threshold(
        0.4, "of ln V: from there on outputs count, since untrained models repeat and are silent too"
    ),
    "outputs": Threshold(5, "translations: of fewer a share says little"),
    "copies": Threshold(0.2, "of the outputs, beyond the share of the references that are copies"),
    "empty": Threshold(0.05, "of the outputs, beyond that of the references"),
    "repeating": Threshold(0.2, "of the outputs, beyond that of the references: a model may repeat now and then"),
    "same": Threshold(0.5, "of the outputs, beyond that of the references"),
    "short": Threshold(0.75, "of the references' length: healthy models are within 10 %"),
    "long": Threshold(1.33, "of the references' length, the same the other way"),
    "data_wait": Threshold(0.25, "of the time of the steps: batches are made ahead, so usual are 0.01"),
    "waited": Threshold(5.0, "seconds of it: less is not worth a word"),
    "pace": Threshold(0.6, "of the usual tokens a second: a third less is said as time left, and may be chance"),
    "slow_seconds": Threshold(60.0, "of steps at that pace: as long as the time left looks back"),
}


def threshold(name: str) -> float:
    """The number of this name."""
    return THRESHOLDS[name].value
