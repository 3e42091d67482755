"""A run as graphs of ONNX, and the runner of one file that goes with them."""
