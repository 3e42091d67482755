"""A busy machine, shared with the processes of others: how threads wait, and on which cores they run."""
