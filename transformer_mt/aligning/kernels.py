"""The loops of the aligner over every pair of words, written for numba, and runnable without it.

Arrays have one dimension: word numbers int32, places in other arrays int64, probabilities float64. The lexical table
has a row for each source word: `columns[row_starts[w] : row_starts[w + 1]]` are the target words that occur beside
word w, and `values` their probabilities. The loops go from source word to source word, because then one row at a time
is spread over an array of all target words, where it is found without a search and stays in the processor's cache.

`up` and `down` hold, for each word of the targets, its share of the prior exp(tension h): h is a difference of two
places, so that the exponential of one is multiplied by that of the other. `up` is for target words up to the diagonal.
"""

import math


def count_row_sizes(word_starts, sentences, tgt_starts, tgt, last_seen, row_sizes):
    """How many target words occur beside each source word. `last_seen` begins with -1 for every target word."""
    for word in range(len(row_sizes)):
        for k in range(word_starts[word], word_starts[word + 1]):
            for p in range(tgt_starts[sentences[k]], tgt_starts[sentences[k] + 1]):
                if last_seen[tgt[p]] != word:
                    last_seen[tgt[p]] = word
                    row_sizes[word] += 1


def fill_rows(word_starts, sentences, tgt_starts, tgt, last_seen, row_starts, columns):
    """The target words that occur beside each source word, in the order in which they do."""
    for word in range(len(row_starts) - 1):
        end = row_starts[word]
        for k in range(word_starts[word], word_starts[word + 1]):
            for p in range(tgt_starts[sentences[k]], tgt_starts[sentences[k] + 1]):
                if last_seen[tgt[p]] != word:
                    last_seen[tgt[p]] = word
                    columns[end] = tgt[p]
                    end += 1


def add_likelihoods(
    word_starts, sentences, positions, src_starts, tgt_starts, tgt,
    row_starts, columns, values, tension, up, down, row, likelihoods,
):  # fmt: skip
    """To the likelihood of each target word add those of all source words that may explain it."""
    for word in range(len(row_starts) - 1):
        for k in range(row_starts[word], row_starts[word + 1]):
            row[columns[k]] = values[k]
        for k in range(word_starts[word], word_starts[word + 1]):
            n = sentences[k]
            begin, end = tgt_starts[n], tgt_starts[n + 1]
            j, src_len = positions[k] + 1, src_starts[n + 1] - src_starts[n]
            border = begin + j * (end - begin) // src_len
            before, behind = math.exp(-tension * j / src_len), math.exp(tension * j / src_len)
            for p in range(begin, border):
                likelihoods[p] += row[tgt[p]] * up[p] * before
            for p in range(border, end):
                likelihoods[p] += row[tgt[p]] * down[p] * behind


def count_expected(
    word_starts, sentences, positions, src_starts, tgt_starts, tgt,
    row_starts, columns, values, tension, up, down, row, counts, features,
):  # fmt: skip
    """Put expected counts in the place of the probabilities, and the expected sum of h in `features[0]`.

    Here `up` and `down` are divided by the likelihood of their word.
    """
    feature = 0.0
    for word in range(len(row_starts) - 1):
        for k in range(row_starts[word], row_starts[word + 1]):
            row[columns[k]] = values[k]
            counts[columns[k]] = 0.0
        for k in range(word_starts[word], word_starts[word + 1]):
            n = sentences[k]
            begin, end = tgt_starts[n], tgt_starts[n + 1]
            j, src_len = positions[k] + 1, src_starts[n + 1] - src_starts[n]
            border = begin + j * (end - begin) // src_len
            place = j / src_len
            before, behind = math.exp(-tension * place), math.exp(tension * place)
            for p in range(begin, border):
                share = row[tgt[p]] * up[p] * before
                counts[tgt[p]] += share
                feature += share * ((p - begin + 1) / (end - begin) - place)
            for p in range(border, end):
                share = row[tgt[p]] * down[p] * behind
                counts[tgt[p]] += share
                feature += share * (place - (p - begin + 1) / (end - begin))
        for k in range(row_starts[word], row_starts[word + 1]):
            values[k] = counts[columns[k]]
    features[0] = feature


def score_cells(
    src, src_forms, src_starts, tgt, tgt_forms, tgt_starts,
    row_starts, columns, values, floor, unknown, tension, up, down, scores,
):  # fmt: skip
    """The probability that source word j explains target word i and that it is chosen to, before it is normalised.

    `scores` holds a row for each target word, one pair after the other. A row of the table is in ascending order here;
    a pair of words that it lacks has the probability `floor`. A word that is not known has the number -1. Where one of
    the two is not known, the probability is 1 if their forms are equal, and else `unknown`.
    """
    first = 0
    for n in range(len(src_starts) - 1):
        begin, end = tgt_starts[n], tgt_starts[n + 1]
        src_len = src_starts[n + 1] - src_starts[n]
        for j in range(src_len):
            source, form = src[src_starts[n] + j], src_forms[src_starts[n] + j]
            border = begin + (j + 1) * (end - begin) // src_len
            before, behind = math.exp(-tension * (j + 1) / src_len), math.exp(tension * (j + 1) / src_len)
            for p in range(begin, end):
                target = tgt[p]
                if source < 0 or target < 0:
                    value = 1.0 if form == tgt_forms[p] else unknown
                else:
                    low, last = row_starts[source], row_starts[source + 1]
                    high = last
                    while low < high:
                        middle = (low + high) // 2
                        if columns[middle] < target:
                            low = middle + 1
                        else:
                            high = middle
                    value = values[low] if low < last and columns[low] == target else floor
                share = up[p] * before if p < border else down[p] * behind
                scores[first + (p - begin) * src_len + j] = value * share
        first += (end - begin) * src_len


def choose_best(src_starts, tgt_starts, nothing, scores, tie, best):
    """For each target word the place of the source word with the largest score, or -1 where no word explains it better.

    Of scores that differ by less than the share `tie`, the first counts.
    """
    cell = 0
    for n in range(len(src_starts) - 1):
        for p in range(tgt_starts[n], tgt_starts[n + 1]):
            largest, best[p] = nothing[p], -1
            for j in range(src_starts[n + 1] - src_starts[n]):
                if scores[cell] > largest * (1.0 + tie):
                    largest, best[p] = scores[cell], j
                cell += 1
