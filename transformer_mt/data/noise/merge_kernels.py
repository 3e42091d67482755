"""The loops of BPE-dropout over the bytes of sentences, written for numba, and runnable without it.

Every number is below 2**63, so that a machine's numbers and Python's agree.
"""

_MASK = 0xFFFFFFFF  # 32 bits
_NONE, _UNKNOWN = 0x7FFFFFFF, -1  # ranks: no merge joins the two symbols; not looked up yet


def spell(ids, piece_starts, pieces, byte_ids, is_word, letters, symbols, begins):
    """The bytes of tokens, as the symbols that merging starts from, and where words begin.

    ids: tokens; the bytes of entry i are pieces[piece_starts[i]] to pieces[piece_starts[i + 1] - 1]. byte_ids: (256,)
    the entry of each byte. is_word: by code point, whether it is a letter, mark or digit. letters, symbols, begins: for
    each byte; the first is room to work in. Words are those of `tokenizers.py`: a space or none, then letters, marks
    and digits, or one other character.
    """
    num_bytes = 0
    for token in ids:
        for place in range(piece_starts[token], piece_starts[token + 1]):
            letters[num_bytes] = pieces[place]
            symbols[num_bytes] = byte_ids[pieces[place]]
            begins[num_bytes] = 0
            num_bytes += 1
    was_space, was_word = False, False
    place = 0
    while place < num_bytes:
        code, length = letters[place], 1
        if code >= 0xF0:
            code, length = code & 0x07, 4
        elif code >= 0xE0:
            code, length = code & 0x0F, 3
        elif code >= 0xC0:
            code, length = code & 0x1F, 2
        for more in range(place + 1, place + length):
            code = (code << 6) | (letters[more] & 0x3F)
        now_word = is_word[code] != 0
        if code == 0x20 or not (was_space or (was_word and now_word)):
            begins[place] = 1
        was_space, was_word = code == 0x20, now_word
        place += length


def merge(symbols, begins, starts, seeds, threshold, first, right, merges, ranks, made, out, lengths):
    """Provilkov et al. 2020, algorithm 1, for every word: merge by merge, each possible one dropped by chance.

    symbols, begins: of `spell`; symbols are changed. starts: (sentences + 1,) the place of each sentence's first byte.
    seeds: (sentences,), below 2**63. threshold: a merge is dropped where a random number of 32 bits is less. The merges
    of the entry a are those from first[a] to first[a + 1] - 1, ascending by their right side, `right`. merges: two
    numbers for each, its rank and the entry that it makes. ranks, made: room for the longest sentence. out, lengths:
    the new tokens, one sentence after the other, and their number in each.
    """
    num_out = 0
    for sentence in range(len(starts) - 1):
        state, weyl = max(1, seeds[sentence] & _MASK), seeds[sentence] >> 32
        begin, last = starts[sentence], starts[sentence + 1]
        before = num_out
        while begin < last:
            end = begin + 1
            while end < last and begins[end] == 0:
                end += 1
            size = end - begin
            for at in range(size - 1):
                ranks[at] = _UNKNOWN
            while True:
                best, chosen = _NONE, -1
                for at in range(size - 1):
                    if ranks[at] == _UNKNOWN:
                        ranks[at] = _NONE
                        a, b = symbols[begin + at], symbols[begin + at + 1]
                        low, high = first[a], first[a + 1]
                        while low < high:
                            middle = (low + high) >> 1
                            if right[middle] < b:
                                low = middle + 1
                            else:
                                high = middle
                        if low < first[a + 1] and right[low] == b:
                            ranks[at], made[at] = merges[2 * low], merges[2 * low + 1]
                    if ranks[at] != _NONE:
                        # xorshift in 32 bits with a Weyl sequence added (Marsaglia 2003, "Xorshift RNGs", section 3)
                        state ^= (state << 13) & _MASK
                        state ^= state >> 17
                        state ^= (state << 5) & _MASK
                        weyl = (weyl + 362437) & _MASK
                        if ranks[at] < best and ((state + weyl) & _MASK) >= threshold:
                            best, chosen = ranks[at], at
                if chosen < 0:
                    break
                symbols[begin + chosen] = made[chosen]
                size -= 1
                for at in range(chosen + 1, size):
                    symbols[begin + at] = symbols[begin + at + 1]
                    ranks[at], made[at] = ranks[at + 1], made[at + 1]
                ranks[chosen] = _UNKNOWN
                if chosen > 0:
                    ranks[chosen - 1] = _UNKNOWN
            for at in range(size):
                out[num_out] = symbols[begin + at]
                num_out += 1
            begin = end
        lengths[sentence] = num_out - before
