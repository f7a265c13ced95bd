"""Parses an HTML page of the load generator, and checks that every element is closed."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Self

_VOID = {"meta", "input"}


@dataclass(slots=True)
class Node:
    """An element with its attributes, its own text and its children."""

    tag: str
    attributes: dict[str, str]
    words: list[str] = field(default_factory=list)
    children: list["Node"] = field(default_factory=list)

    def all(self, tag: str, kind: str = "") -> list["Node"]:
        """The elements below with this tag and class, in order."""
        found = [self] if self.tag == tag and (not kind or kind in self.attributes.get("class", "").split()) else []
        return found + [node for child in self.children for node in child.all(tag, kind)]

    @property
    def text(self) -> str:
        """The text of the element, without that of its children."""
        return "".join(self.words)

    def rows(self) -> list[list[str]]:
        """The cells of a table."""
        return [[cell.text for cell in row.children] for row in self.all("tr")]


class HtmlDocument(HTMLParser):
    """The tree of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Node("", {})
        self._open = [self.root]

    @classmethod
    def parse(cls, text: str) -> Self:
        document = cls()
        document.feed(text)
        document.close()
        assert document._open == [document.root]
        return document

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, {name: value or "" for name, value in attrs})
        self._open[-1].children.append(node)
        if tag not in _VOID:
            self._open.append(node)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        self._open[-1].words.append(data)


CUT = """[...document.querySelectorAll('svg')].flatMap(plot => {
  const frame = plot.getBoundingClientRect();
  if (!frame.width) return [];
  const texts = [...plot.querySelectorAll('text')].map(node => [node.textContent, node.getBoundingClientRect()]);
  const outside = texts.filter(([, box]) => box.left < frame.left - 1 || box.right > frame.right + 1
    || box.top < frame.top - 1 || box.bottom > frame.bottom + 1).map(([text]) => text);
  const covered = texts.filter(([, one], index) => texts.slice(index + 1).some(([, other]) =>
    one.left < other.right - 1 && other.left < one.right - 1 && one.top < other.bottom - 3 && other.top < one.bottom - 3
  )).map(([text]) => text);
  return [...outside, ...covered];
})"""
"""The texts that are outside of their plot, or that another one covers."""
