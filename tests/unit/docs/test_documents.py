"""What the documents say about the repository and about each other is so."""

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.documents import ROOT, Block, anchors, blocks, documents, links, prose

DOCS = ROOT / "docs"
MERMAID = {
    "sequenceDiagram": re.compile(
        r"participant \w+ as .+|\w+(-->>|->>|-x|--x)\w+: .+|Note (over|left of|right of) \w+(,\w+)?: .+"
        r"|(loop|alt|opt|else|par|and) .+|end"
    ),
    "flowchart": re.compile(
        r"\w+([\[({]{1,2}[^\[\](){}]+[\])}]{1,2})?( (-->|---|-\.->|==>)(\|[^|]+\|)?| -- [^-]+ -->) "
        r"\w+([\[({]{1,2}[^\[\](){}]+[\])}]{1,2})?|subgraph .+|end|direction (LR|TB|RL|BT)"
    ),
}


def name(file: Path) -> str:
    return str(file.relative_to(ROOT))


@pytest.mark.parametrize("file", documents(), ids=name)
def test_every_link_within_the_repository_leads_somewhere(file: Path) -> None:
    wrong = []
    for line, target in links(file):
        if re.match(r"[a-z]+:", target):
            continue  # another site's
        path, _, anchor = target.partition("#")
        there = (file.parent / unquote(path)).resolve() if path else file
        if not there.exists() or not there.is_relative_to(ROOT):
            wrong.append(f"{name(file)}:{line}: there is no {target}")
        elif anchor and (there.suffix != ".md" or anchor not in anchors(there)):
            wrong.append(f"{name(file)}:{line}: {there.name} has no heading #{anchor}")
    assert wrong == []


def test_every_page_can_be_reached_from_the_index() -> None:
    reached: set[Path] = set()
    waiting = [DOCS / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md" or not page.is_relative_to(DOCS):
            continue
        reached.add(page)
        targets = (target.partition("#")[0] for _, target in links(page) if not re.match(r"[a-z]+:", target))
        waiting += [(page.parent / target).resolve() for target in targets if target]
    pages = {page for page in documents() if page.is_relative_to(DOCS) and page.parent.name != "decisions"}
    assert sorted(map(name, pages - reached)) == []


@pytest.mark.parametrize(
    "file", [page for page in documents() if page.is_relative_to(DOCS) and "decisions" not in page.parts], ids=name
)
def test_a_page_says_first_whom_it_is_for(file: Path) -> None:
    paragraphs = [line for _, line in prose(file) if line.strip() and not line.startswith(("#", "<!--"))]
    assert re.match(r"For ", paragraphs[0]), f"{name(file)}: the first sentence says whom the page is for"


@pytest.mark.parametrize("block", [b for page in documents() for b in blocks(page) if b.language == "mermaid"], ids=str)
def test_a_diagram_has_no_line_that_cannot_be_drawn(block: Block) -> None:
    kind, *lines = [line.strip() for line in block.text.splitlines() if line.strip()]
    grammar = MERMAID[kind.split()[0]]
    assert [line for line in lines if not grammar.fullmatch(line)] == []
    opened = sum(1 for line in lines if line.split()[0] in {"loop", "alt", "opt", "par", "subgraph"})
    assert opened == lines.count("end")
