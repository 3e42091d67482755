"""The APIs of the server and its page: everything that knows HTTP."""
