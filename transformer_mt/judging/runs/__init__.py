"""All runs of a folder side by side: what is known of each, the table, and the curves."""
