"""What is on the disk: files written whole, the folder of a run, weights, manifests."""
