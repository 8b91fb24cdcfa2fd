"""Check a built site: links within it lead somewhere, and nothing is loaded from other hosts.

``python docs/check.py FOLDER`` prints what is wrong and returns 1 then.
"""

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import override
from urllib.parse import unquote, urldefrag, urlsplit

#: Attributes that a browser follows by itself, by element.
LOADED = {"img": "src", "script": "src", "iframe": "src", "source": "src", "link": "href"}
#: Relations of `link` that load nothing.
IDLE = {"canonical", "prev", "next", "search", "index", "author"}


class Page(HTMLParser):
    """Targets, links and loaded files of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.targets: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.targets.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in LOADED and LOADED[tag] in given and given.get("rel") not in IDLE:
            self.loaded.append(given[LOADED[tag]])


def _pages(site: Path) -> list[Path]:
    # A theme keeps templates among its static files.
    found = sorted(site.rglob("*.html"))
    return [path for path in found if "_static" not in path.relative_to(site).parts]


def problems(site: Path) -> Iterator[str]:
    """Say which links of a site lead nowhere, and what comes from other hosts."""
    pages = {p.resolve(): Page(p.read_text(encoding="utf-8")) for p in _pages(site)}
    for path, page in pages.items():
        where = path.relative_to(site.resolve())
        for address in page.loaded:
            if urlsplit(address).scheme in ("http", "https") or address.startswith("//"):
                yield f"{where}: loads {address}"
        for address in page.links + page.loaded:
            file, anchor = urldefrag(address)
            if urlsplit(address).scheme or address.startswith("//"):
                continue
            target = (path.parent / unquote(file.partition("?")[0])).resolve() if file else path
            if not target.exists():
                yield f"{where}: {address} does not exist"
            elif anchor and target in pages and unquote(anchor) not in pages[target].targets:
                yield f"{where}: {address} has no such place"


def main(site: Path) -> int:
    """Print the problems of a site; return 1 if there are any."""
    found = sorted(set(problems(site)))
    print("\n".join(found) or f"{len(_pages(site))} pages: every internal link leads somewhere")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
