"""A search's layers and its choice of tokens on a GPU, by Triton kernels: each is one of many short ones in a step."""
