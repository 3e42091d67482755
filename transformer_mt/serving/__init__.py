"""A server that translates over the network, by LibreTranslate's and DeepL's API, and a page for people."""
