"""What a training on a GPU computes in kernels of its own, written in Triton."""
