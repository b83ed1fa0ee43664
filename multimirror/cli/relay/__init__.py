"""The way to a worker through the management cluster: connections carried by `exec` into a dispatcher's pod.

    command ── TLS ───────────────────────────────────────────────────────────── the worker's API server
       └─ streams ── pipe of one `exec` ── `multimirror relay` in the pod ── TCP ──┘

Bytes are carried, and not looked into: TLS is between the command and the worker. One process in the pod serves all
connections of a command, to all workers (streams.py), so that it costs the dispatcher's pod little memory; it connects
to the addresses in the credentials that are stored for workers, and nowhere else (serving.py).
"""
