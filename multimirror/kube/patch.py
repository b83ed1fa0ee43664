"""JSON merge patches (RFC 7386)."""

from .resource import Object


def merge_patch(before: Object, after: Object) -> Object:
    """From one object to the other: what is not there any more has to be said, at every depth."""
    patch: Object = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if old != value:
            patch[key] = merge_patch(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return patch
