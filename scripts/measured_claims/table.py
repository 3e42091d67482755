"""The table of all claims"""

from measured_claims import beginning, costs, lengths, reach, scores, text, trained
from measured_claims.claim import Claim

BEYOND_ERROR = "the difference is more than twice its standard error over the seeds"
_2017 = "Vaswani et al. 2017, section"

CLAIMS = {
    claim.name: claim
    for claim in (
        Claim(
            "sequential",
            "Attention computes all positions of a sentence at once. In a recurrence each position waits for the one "
            "before it.",
            f"{_2017} 4 and table 1",
            "the longest chain of operations is the same at every length for the Transformer, and grows by one or more "
            "a position for the recurrent network",
            reach.sequential,
        ),
        Claim(
            "parallel",
            "The longer the sentences, the more a Transformer's training gains on that of a recurrent network.",
            f"{_2017} 1 and 4",
            "from short to long sentences of as many tokens the time of the recurrent network's step grows 1.5 times "
            "as much as the Transformer's",
            reach.parallel,
        ),
        Claim(
            "layer_cost",
            "A layer of self-attention needs fewer operations than a recurrent layer while sentences are shorter than "
            "vectors are wide.",
            f"{_2017} 4 and table 1",
            "fewer at every length below d_model, and not fewer at any other",
            reach.layer_cost,
        ),
        Claim(
            "path",
            "Under attention any two positions are one layer apart, whatever lies between them. In a recurrence what "
            "the first word does to the last position fades with the distance.",
            f"{_2017} 4 and table 1",
            "at the greatest length the gradient with respect to the first word is more than 0.1 of a neighbour's "
            "under attention, and less than 0.01 in both recurrences",
            reach.path,
        ),
        Claim(
            "scale",
            "Dot products of vectors with d_k numbers have the variance d_k. Undivided by its root, they drive the "
            "softmax where it has hardly a gradient.",
            f"the notes, the core; {_2017} 3.2.1",
            "the variance is d_k, and 1 after dividing, within a quarter; at the largest d_k the plain softmax has "
            "less than half of the scaled one's gradient, and its largest weight is more than twice as large",
            scores.scale,
        ),
        Claim(
            "heads_cost",
            "Several small heads cost about as much as one head of the whole width.",
            f"the notes, the core; {_2017} 3.2.2",
            "8 heads have as many parameters as 1, and take less than 1.5 times its time",
            scores.heads_cost,
        ),
        Claim(
            "sinusoids",
            "The sinusoidal vector of a position some distance away is a linear function of the position's own, the "
            "same for all positions.",
            f"{_2017} 3.5",
            "one matrix a distance is right to 0.0001 everywhere; for random vectors none is, to 0.1",
            scores.sinusoids,
        ),
        Claim(
            "order",
            "Without positions attention does not see the order of the words.",
            f"{_2017} 3.5",
            "words in another order keep their vectors to 0.00001 without positions, and change by more than 0.01 with "
            "positions of every kind",
            scores.order,
        ),
        Claim(
            "initial_loss",
            "A fresh model guesses: its loss is about ln V.",
            "the notes, initialisation",
            "within 0.2 where output and embedding are not tied, for every vocabulary of more than ten times d_model",
            beginning.initial_loss,
        ),
        Claim(
            "gradients",
            "In a fresh post-norm model the gradients near the output stay large however deep it is; in a pre-norm "
            "model they shrink with the root of the depth.",
            "Xiong et al. 2020, section 3; the notes have both norms",
            "from the least to the greatest depth the pre-norm's gradient falls more than half of the way to what the "
            "root says, and the post-norm's does not",
            beginning.gradients,
        ),
        Claim(
            "warm_up",
            "Post-norm needs a warm-up of the learning rate; pre-norm hardly does.",
            "Xiong et al. 2020, section 3; the notes, Noam",
            "without a warm-up post-norm loses more than 0.1 nll, and pre-norm less than half of what post-norm loses",
            trained.warm_up,
            trains=True,
        ),
        Claim(
            "long_sentences",
            "A network that squeezes a sentence into one vector fails where sentences are long; attention does not.",
            "Bahdanau et al. 2015, section 5.2; the notes",
            "from one sentence a line to four the nll of the LSTM without attention grows by more than 0.1, and that "
            "of both models with attention by less than half as much",
            lengths.long_sentences,
            trains=True,
        ),
        Claim(
            "beyond_training",
            "Sinusoidal positions carry on beyond the lengths of training, where learned ones cannot.",
            f"{_2017} 3.5",
            "from the longest lines of training to twice as many sentences the nll grows by less than 0.5, and by less "
            "than half as much as with learned positions",
            lengths.beyond_training,
            trains=True,
        ),
        Claim(
            "several_heads",
            "Several heads are better than one of the same cost.",
            f"{_2017} 3.2.2 and table 3, row A",
            f"lower nll, and {BEYOND_ERROR}",
            trained.several_heads,
            trains=True,
        ),
        Claim(
            "bigger",
            "Wider models are better.",
            f"{_2017} 6.2 and table 3, row C",
            f"lower nll, and {BEYOND_ERROR}",
            trained.bigger,
            trains=True,
        ),
        Claim(
            "label_smoothing",
            "Label smoothing makes the perplexity worse and BLEU better.",
            f"the notes, the core; {_2017} 5.4",
            f"higher nll and higher BLEU, and in both {BEYOND_ERROR}",
            trained.label_smoothing,
            trains=True,
        ),
        Claim(
            "weight_tying",
            "One matrix for target embedding and output saves parameters and loses nothing.",
            f"the notes, options; {_2017} 3.4; Press and Wolf 2017",
            "the nll is not higher by more than twice the standard error of the difference over the seeds",
            trained.weight_tying,
            trains=True,
        ),
        Claim(
            "gated",
            "SwiGLU is better than ReLU at equal parameters.",
            "the notes, options; Shazeer 2020",
            f"lower nll, and {BEYOND_ERROR}",
            trained.gated,
            trains=True,
        ),
        Claim(
            "rms_norm",
            "RMSNorm is as good as LayerNorm.",
            "the notes, options; Zhang and Sennrich 2019",
            "its nll is not higher by more than twice the standard error of the difference over the seeds",
            trained.rms_norm,
            trains=True,
        ),
        Claim(
            "norm_cost",
            "RMSNorm is cheaper than LayerNorm.",
            "Zhang and Sennrich 2019",
            "less time, both ways",
            costs.norm_cost,
        ),
        Claim(
            "beam",
            "Beam search finds better translations than greedy search.",
            f"{_2017} 6.1",
            f"higher BLEU, and {BEYOND_ERROR}",
            trained.beam,
            trains=True,
        ),
        Claim(
            "averaging",
            "The mean of the last checkpoints is better than the last one.",
            f"{_2017} 6.1",
            f"lower nll, and {BEYOND_ERROR}",
            trained.averaging,
            trains=True,
        ),
        Claim(
            "cached_decoding",
            "With keys and values of the past in a cache, a step's work grows at most in line with the length. "
            "Without, it grows faster.",
            "Shazeer 2019, section 2.4",
            "to the greatest length from the one before it the work with a cache grows at most as the length does, and "
            "without by more",
            costs.cached_decoding,
        ),
        Claim(
            "shared_heads",
            "Where query heads share keys and values, the cache is smaller by num_heads / num_kv_heads.",
            "the notes, options; Shazeer 2019; Ainslie et al. 2023",
            "exactly so",
            costs.shared_heads,
        ),
        Claim(
            "window_reach",
            "Under a sliding window each layer sees one window further.",
            "the notes, options; Jiang et al. 2023, section 2",
            "the farthest word with a gradient is layers x (window - 1) back",
            costs.window_reach,
        ),
        Claim(
            "window_memory",
            "A sliding window bounds the memory of the cache.",
            "Jiang et al. 2023, section 2",
            "as many bytes after the longest translation as after the shortest",
            costs.window_memory,
        ),
        Claim(
            "experts",
            "A mixture of 8 experts of which a token uses 2 stores 47 billion parameters and uses 13.",
            "the notes, options; Jiang et al. 2024, section 1",
            "both rounded figures",
            costs.experts,
        ),
        Claim(
            "subwords",
            "Byte pairs leave no word unknown.",
            f"{_2017} 5.1; Sennrich et al. 2016",
            "no unknown token and every line back as it was, where whole words have some unknown",
            text.subwords,
        ),
        Claim(
            "padding",
            "Sentences of like length in one batch waste little.",
            f"{_2017} 5.1",
            "less than a third of the padding of batches of pairs as they come",
            text.padding,
        ),
    )
}
