"""Configuration: what a YAML file may say (`schema`, `sections`), and how it is read (`loading`)."""
