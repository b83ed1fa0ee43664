"""`multimirror doctor`: what is wrong with management cluster, workers, queues and Jobs, and what to do about it.

It changes nothing: it reads, and asks API servers what they would do (dry runs). What cannot be looked at is said too.
"""
