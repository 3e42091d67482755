"""Products with weights that lie in panels, and whole layers of a step made of them, as numba compiles them."""
