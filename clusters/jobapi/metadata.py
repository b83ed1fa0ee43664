"""The rules for `metadata`, the same for every kind of object."""

from collections.abc import Callable, Mapping
from typing import Final

from multimirror.batch import names
from multimirror.batch.errors import FieldError, forbidden, invalid, quote, required, too_long
from multimirror.batch.labels import validate_labels
from multimirror.batch.types import Json

IMMUTABLE: Final = "field is immutable"
_ANNOTATIONS_LIMIT: Final = 256 * 1024
_STANDARD_FINALIZERS: Final = ("kubernetes", "orphan", "foregroundDeletion")
_FIXED: Final = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


def validate_metadata(
    metadata: Json, name_rule: Callable[[str], list[str]] = names.dns_subdomain, *, namespaced: bool = True
) -> list[FieldError]:
    """An object's metadata on create, and again on every update."""
    errors = []
    if prefix := metadata.get("generateName"):
        # A prefix may end in a dash: the server puts letters behind it.
        probe = prefix[:-2] + "a" if prefix.endswith("-") and len(prefix) > 1 else prefix
        errors += [invalid("metadata.generateName", prefix, complaint) for complaint in name_rule(probe)]
    if name := metadata.get("name"):
        errors += [invalid("metadata.name", name, complaint) for complaint in name_rule(name)]
    else:
        errors.append(required("metadata.name", "name or generateName is required"))
    errors += _validate_namespace(metadata.get("namespace"), namespaced=namespaced)
    if (generation := metadata.get("generation") or 0) < 0:
        errors.append(invalid("metadata.generation", generation, "must be greater than or equal to 0"))
    errors += validate_labels(metadata.get("labels"), "metadata.labels")
    errors += validate_annotations(metadata.get("annotations"), "metadata.annotations")
    errors += _validate_owner_references(metadata.get("ownerReferences") or [])
    errors += _validate_finalizers(metadata.get("finalizers") or [])
    return errors


def validate_metadata_update(new: Json, old: Json) -> list[FieldError]:
    """What may not change between two versions of an object's metadata."""
    if new is old or new == old:
        return []
    errors = []
    if old.get("deletionTimestamp"):
        added = [item for item in new.get("finalizers") or () if item not in (old.get("finalizers") or ())]
        if added:
            listed = ", ".join(quote(item) for item in sorted(set(added)))
            detail = "no new finalizers can be added if the object is being deleted, found new finalizers []string"
            errors.append(forbidden("metadata.finalizers", f"{detail}{{{listed}}}"))
    if not new.get("resourceVersion"):
        errors.append(invalid("metadata.resourceVersion", "", "must be specified for an update"))
    if (generation := new.get("generation") or 0) < (old.get("generation") or 0):
        errors.append(invalid("metadata.generation", generation, "must not be decremented"))
    errors += [
        invalid(f"metadata.{field}", new.get(field), IMMUTABLE) for field in _FIXED if new.get(field) != old.get(field)
    ]
    errors += validate_labels(new.get("labels"), "metadata.labels")
    errors += validate_annotations(new.get("annotations"), "metadata.annotations")
    errors += _validate_owner_references(new.get("ownerReferences") or [])
    errors += _validate_unqualified_finalizers(new.get("finalizers") or [])
    return errors


def validate_annotations(annotations: Mapping[str, str] | None, field: str) -> list[FieldError]:
    annotations = annotations or {}
    errors = [invalid(field, key, complaint) for key in annotations for complaint in names.qualified_name(key.lower())]
    if sum(names.size(key) + names.size(value) for key, value in annotations.items()) > _ANNOTATIONS_LIMIT:
        errors.append(too_long(field, _ANNOTATIONS_LIMIT))
    return errors


def _validate_namespace(namespace: str | None, *, namespaced: bool) -> list[FieldError]:
    if not namespaced:
        return [forbidden("metadata.namespace", "not allowed on this type")] if namespace else []
    if not namespace:
        return [required("metadata.namespace")]
    return [invalid("metadata.namespace", namespace, complaint) for complaint in names.dns_label(namespace)]


def _validate_owner_references(references: list[Json]) -> list[FieldError]:
    field = "metadata.ownerReferences"
    errors = []
    first_controller = ""
    for reference in references:
        group, slash, version = reference.get("apiVersion", "").partition("/")
        if not (version if slash else group):
            errors.append(invalid(f"{field}.apiVersion", reference.get("apiVersion", ""), "version must not be empty"))
        errors += [
            invalid(f"{field}.{key}", "", "must not be empty")
            for key in ("kind", "name", "uid")
            if not reference.get(key)
        ]
        if reference.get("apiVersion") == "v1" and reference.get("kind") == "Event":
            errors.append(invalid(field, reference, "/v1, Kind=Event is disallowed from being an owner"))
        if reference.get("controller"):
            controller = f"{reference.get('kind', '')}/{reference.get('name', '')}"
            if first_controller:
                detail = (
                    'Only one reference can have Controller set to true. Found "true" in references for '
                    f"{first_controller} and {controller}"
                )
                errors.append(invalid(field, references, detail))
            else:
                first_controller = controller
    return errors


def _validate_finalizers(finalizers: list[str]) -> list[FieldError]:
    field = "metadata.finalizers"
    errors = [invalid(field, item, complaint) for item in finalizers for complaint in names.qualified_name(item)]
    if {"orphan", "foregroundDeletion"} <= set(finalizers):
        errors.append(invalid(field, finalizers, "finalizer orphan and foregroundDeletion cannot be both set"))
    return errors + _validate_unqualified_finalizers(finalizers)


def _validate_unqualified_finalizers(finalizers: list[str]) -> list[FieldError]:
    return [
        invalid(
            f"metadata.finalizers[{i}]", item, "name is neither a standard finalizer name nor is it fully qualified"
        )
        for i, item in enumerate(finalizers)
        if "/" not in item and item not in _STANDARD_FINALIZERS
    ]
