"""Configuration: what a YAML file may say (`schema`), and how it is read (`loading`)."""
