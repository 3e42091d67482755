"""Search over any step function (`search`, `beam`), and text to text (`translator`)."""
