"""The documents of this repository, read as their readers see them: fenced blocks, headings, links."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
_FENCE: Final = re.compile(r"^(?P<indent> *)(?P<fence>```+|~~~+)(?P<info>[^`]*)$")
_HEADING: Final = re.compile(r"^#{1,6} +(?P<title>.+?)(?: +#+)?$")
_LINK: Final = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\((?P<target>[^()\s]+)\)")
_HTML_LINK: Final = re.compile(r"<(?:img|a|source)\b[^>]*?\b(?:src|href|srcset)=\"(?P<target>[^\"]+)\"")
_NOT_OURS: Final = {".venv", ".git", "node_modules", ".pytest_cache", ".hypothesis", "build", "dist"}


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, its text, where it is, and the HTML comment right above it."""

    file: Path
    line: int
    language: str
    text: str
    note: str

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line}"


def documents() -> list[Path]:
    """Every Markdown file of the repository."""
    found = (path for path in ROOT.rglob("*.md") if not _NOT_OURS & set(path.relative_to(ROOT).parts))
    return sorted(path for path in found if not any(part.endswith(".egg-info") for part in path.parts))


def blocks(file: Path) -> Iterator[Block]:
    """The fenced blocks of a document."""
    fence, indent, note, start, language = "", "", "", 0, ""
    lines: list[str] = []
    for number, line in enumerate(file.read_text().splitlines(), 1):
        found = _FENCE.match(line)
        if fence:
            if found and found["fence"].startswith(fence) and not found["info"].strip():
                yield Block(file, start, language, "\n".join(lines) + "\n", note)
                fence, note = "", ""
            else:
                lines.append(line.removeprefix(indent))
        elif found:
            fence, indent, language, start, lines = found["fence"], found["indent"], found["info"].strip(), number, []
        elif line.startswith("<!--") and line.endswith("-->"):
            note = line.removeprefix("<!--").removesuffix("-->").strip()
        elif line.strip():
            note = ""


def prose(file: Path) -> Iterator[tuple[int, str]]:
    """The lines outside of fenced blocks, without inline code."""
    fence = ""
    for number, line in enumerate(file.read_text().splitlines(), 1):
        found = _FENCE.match(line)
        if fence:
            if found and found["fence"].startswith(fence) and not found["info"].strip():
                fence = ""
        elif found:
            fence = found["fence"]
        else:
            yield number, line


def anchors(file: Path) -> set[str]:
    """What can stand after `#` in a link to this document, as GitHub makes it from headings."""
    seen: Counter[str] = Counter()
    result = set()
    for _, line in prose(file):
        if found := _HEADING.match(line):
            title = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", found["title"])
            slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
            result.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
            seen[slug] += 1
    return result


def links(file: Path) -> Iterator[tuple[int, str]]:
    """Where the links of a document lead, with their lines."""
    for number, line in prose(file):
        for pattern in (_LINK, _HTML_LINK):
            for found in pattern.finditer(re.sub(r"`[^`]*`", "``", line) if pattern is _LINK else line):
                yield number, found["target"]
