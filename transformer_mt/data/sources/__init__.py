"""The places that sentence pairs come from, one class a kind, and what reads them."""
