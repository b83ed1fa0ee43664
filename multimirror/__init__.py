"""multimirror: ordinary Kubernetes Jobs, run on whichever worker cluster has room, seen where they were created."""
