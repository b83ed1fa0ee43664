"""Which objects a list, a watch or a deletion of many is about: namespace, label selector, field selector."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from clusters.embedded import errors
from clusters.embedded.context import Context
from clusters.embedded.kinds import Kind
from clusters.embedded.selectors import field_selector, label_selector
from clusters.embedded.store import Item

Test = Callable[[Item], bool]


@dataclass(frozen=True, slots=True)
class Selection:
    """The objects of a namespace, or of all, that pass a test."""

    prefix: str
    test: Test | None = None

    @classmethod
    def parse(cls, ctx: Context) -> "Selection":
        """From the address and the query."""
        prefix = f"{ctx.namespace}/" if ctx.namespace and ctx.kind.namespaced else ""
        query = ctx.request.query
        tests: list[Test] = []
        try:
            if text := query.get("labelSelector"):
                labels = label_selector(text)
                tests.append(lambda item: labels(item.labels))
            if text := query.get("fieldSelector"):
                tests += [_field_test(ctx.kind, *requirement) for requirement in field_selector(text)]
        except ValueError as error:
            raise errors.bad_request(str(error)) from error
        if ctx.name is not None:
            tests.append(_field_test(ctx.kind, "metadata.name", True, ctx.name))
        if not tests:
            return cls(prefix)
        if len(tests) == 1:
            return cls(prefix, tests[0])
        return cls(prefix, lambda item: all(test(item) for test in tests))

    def matches(self, item: Item | None) -> bool:
        """Whether an item is one of them."""
        if item is None or not item.key.startswith(self.prefix):
            return False
        return self.test is None or self.test(item)

    def scan(self, ctx: Context) -> Iterator[Item]:
        """The namespace's items, before the test."""
        return ctx.kind.table.scan(self.prefix)


def _field_test(kind: Kind, field: str, equal: bool, value: str) -> Test:
    if field == "metadata.name":
        return lambda item: (item.key.rpartition("/")[2] == value) is equal
    if field == "metadata.namespace" and kind.namespaced:
        return lambda item: (item.key.rpartition("/")[0] == value) is equal
    if field not in kind.strategy.selectable:
        if not kind.strategy.selectable:
            known = '"metadata.name", "metadata.namespace"' if kind.namespaced else '"metadata.name"'
            raise ValueError(f'"{field}" is not a known field selector: only {known}')
        if kind.group == "batch":
            raise ValueError(f'field label "{field}" not supported for {kind.kind}')
        raise ValueError(f"field label not supported: {field}")
    return lambda item: (item.fields.get(field, "") == value) is equal
