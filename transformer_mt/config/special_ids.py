"""The special ids, which are the same in every vocabulary."""

PAD_ID = 0
UNK_ID = 1
BOS_ID = 2
EOS_ID = 3
SPECIAL_TOKENS = ("<pad>", "<unk>", "<s>", "</s>")
NUM_SPECIAL = len(SPECIAL_TOKENS)  # words come behind them
