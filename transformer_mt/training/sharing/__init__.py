"""How a process holds the model: alone, or with others by DDP or FSDP."""
