"""Our own controllers on a cluster: what is wanted, how it gets there, and how it goes away again."""
