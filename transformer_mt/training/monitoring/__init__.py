"""What a training says of itself: lines, curves, pictures, profiles, and the time that is left."""
