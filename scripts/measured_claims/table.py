"""The table of all claims"""

from measured_claims import beginning, costs, lengths, reach, scores, text, trained
from measured_claims.claim import Claim

BEYOND_ERROR = "the difference is more than twice its standard error over the seeds"
_2017 = "Vaswani et al. 2017, section"

CLAIMS = {claim.name: claim for claim in (
    Claim(reach.sequential, f"{_2017} 4 and table 1",
          "Attention computes all positions of a sentence at once. In a recurrence each position waits for the one "
          "before it.",
          "the longest chain of operations is the same at every length for the Transformer, and grows by one or "
          "more a position for the recurrent network"),
    Claim(reach.parallel, f"{_2017} 1 and 4",
          "The longer the sentences, the more a Transformer's training gains on that of a recurrent network.",
          "from short to long sentences of as many tokens the time of the recurrent network's step grows 1.5 times "
          "as much as the Transformer's"),
    Claim(reach.layer_cost, f"{_2017} 4 and table 1",
          "A layer of self-attention needs fewer operations than a recurrent layer while sentences are shorter than "
          "vectors are wide.",
          "fewer at every length below d_model, and not fewer at any other"),
    Claim(reach.path, f"{_2017} 4 and table 1",
          "Under attention any two positions are one layer apart, whatever lies between them. In a recurrence what "
          "the first word does to the last position fades with the distance.",
          "at the greatest length the gradient with respect to the first word is more than 0.1 of a neighbour's "
          "under attention, and less than 0.01 in both recurrences"),
    Claim(scores.scale, f"the notes, the core; {_2017} 3.2.1",
          "Dot products of vectors with d_k numbers have the variance d_k. Undivided by its root, they drive the "
          "softmax where it has hardly a gradient.",
          "the variance is d_k, and 1 after dividing, within a quarter; at the largest d_k the plain softmax has "
          "less than half of the scaled one's gradient, and its largest weight is more than twice as large"),
    Claim(scores.heads_cost, f"the notes, the core; {_2017} 3.2.2",
          "Several small heads cost about as much as one head of the whole width.",
          "8 heads have as many parameters as 1, and take less than 1.5 times its time"),
    Claim(scores.sinusoids, f"{_2017} 3.5",
          "The sinusoidal vector of a position some distance away is a linear function of the position's own, the "
          "same for all positions.",
          "one matrix a distance is right to 0.0001 everywhere; for random vectors none is, to 0.1"),
    Claim(scores.order, f"{_2017} 3.5",
          "Without positions attention does not see the order of the words.",
          "words in another order keep their vectors to 0.00001 without positions, and change by more than 0.01 "
          "with positions of every kind"),
    Claim(beginning.initial_loss, "the notes, initialisation",
          "A fresh model guesses: its loss is about ln V.",
          "within 0.2 where output and embedding are not tied, for every vocabulary of more than ten times d_model"),
    Claim(beginning.gradients, "Xiong et al. 2020, section 3; the notes have both norms",
          "In a fresh post-norm model the gradients near the output stay large however deep it is; in a pre-norm "
          "model they shrink with the root of the depth.",
          "from the least to the greatest depth the pre-norm's gradient falls more than half of the way to what the "
          "root says, and the post-norm's does not"),
    Claim(trained.warm_up, "Xiong et al. 2020, section 3; the notes, Noam",
          "Post-norm needs a warm-up of the learning rate; pre-norm hardly does.",
          "without a warm-up post-norm loses more than 0.1 nll, and pre-norm less than half of what "
          "post-norm loses", trains=True),
    Claim(lengths.long_sentences, "Bahdanau et al. 2015, section 5.2; the notes",
          "A network that squeezes a sentence into one vector fails where sentences are long; attention does not.",
          "from one sentence a line to four the nll of the LSTM without attention grows by more than "
          "0.1, and that of both models with attention by less than half as much", trains=True),
    Claim(lengths.beyond_training, f"{_2017} 3.5",
          "Sinusoidal positions carry on beyond the lengths of training, where learned ones cannot.",
          "from the longest lines of training to twice as many sentences the nll grows by less than "
          "0.5, and by less than half as much as with learned positions", trains=True),
    Claim(trained.several_heads, f"{_2017} 3.2.2 and table 3, row A",
          "Several heads are better than one of the same cost.",
          f"lower nll, and {BEYOND_ERROR}", trains=True),
    Claim(trained.bigger, f"{_2017} 6.2 and table 3, row C",
          "Wider models are better.",
          f"lower nll, and {BEYOND_ERROR}", trains=True),
    Claim(trained.label_smoothing, f"the notes, the core; {_2017} 5.4",
          "Label smoothing makes the perplexity worse and BLEU better.",
          f"higher nll and higher BLEU, and in both {BEYOND_ERROR}", trains=True),
    Claim(trained.weight_tying, f"the notes, options; {_2017} 3.4; Press and Wolf 2017",
          "One matrix for target embedding and output saves parameters and loses nothing.",
          "the nll is not higher by more than twice the standard error of the difference over the seeds", trains=True),
    Claim(trained.gated, "the notes, options; Shazeer 2020",
          "SwiGLU is better than ReLU at equal parameters.",
          f"lower nll, and {BEYOND_ERROR}", trains=True),
    Claim(trained.rms_norm, "the notes, options; Zhang and Sennrich 2019",
          "RMSNorm is as good as LayerNorm.",
          "its nll is not higher by more than twice the standard error of the difference over the seeds", trains=True),
    Claim(costs.norm_cost, "Zhang and Sennrich 2019",
          "RMSNorm is cheaper than LayerNorm.",
          "less time, both ways"),
    Claim(trained.beam, f"{_2017} 6.1",
          "Beam search finds better translations than greedy search.",
          f"higher BLEU, and {BEYOND_ERROR}", trains=True),
    Claim(trained.averaging, f"{_2017} 6.1",
          "The mean of the last checkpoints is better than the last one.",
          f"lower nll, and {BEYOND_ERROR}", trains=True),
    Claim(costs.cached_decoding, "Shazeer 2019, section 2.4",
          "With keys and values of the past in a cache, a step's work grows at most in line with the length. "
          "Without, it grows faster.",
          "to the greatest length from the one before it the work with a cache grows at most as the length does, "
          "and without by more"),
    Claim(costs.shared_heads, "the notes, options; Shazeer 2019; Ainslie et al. 2023",
          "Where query heads share keys and values, the cache is smaller by num_heads / num_kv_heads.",
          "exactly so"),
    Claim(costs.window_reach, "the notes, options; Jiang et al. 2023, section 2",
          "Under a sliding window each layer sees one window further.",
          "the farthest word with a gradient is layers x (window - 1) back"),
    Claim(costs.window_memory, "Jiang et al. 2023, section 2",
          "A sliding window bounds the memory of the cache.",
          "as many bytes after the longest translation as after the shortest"),
    Claim(costs.experts, "the notes, options; Jiang et al. 2024, section 1",
          "A mixture of 8 experts of which a token uses 2 stores 47 billion parameters and uses 13.",
          "both rounded figures"),
    Claim(text.subwords, f"{_2017} 5.1; Sennrich et al. 2016",
          "Byte pairs leave no word unknown.",
          "no unknown token and every line back as it was, where whole words have some unknown"),
    Claim(text.padding, f"{_2017} 5.1",
          "Sentences of like length in one batch waste little.",
          "less than a third of the padding of batches of pairs as they come"),
)}  # fmt: skip
