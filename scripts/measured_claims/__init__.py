"""Claims about Transformers and what they replaced, each with a measurement that decides whether it holds"""
