"""Pages for a browser: one style for all, markup in which every text is escaped, and charts without a library."""
