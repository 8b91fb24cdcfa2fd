"""Check a built site: links within it lead somewhere, and nothing is loaded from other hosts.

``python docs/check.py FOLDER`` prints what is wrong and returns 1 then.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

from bs4 import BeautifulSoup

#: Elements that a browser follows by itself; links of some relations load nothing.
RELATIONS = ("canonical", "prev", "next", "search", "index", "author")
IDLE = ", ".join(f"[rel~={relation}]" for relation in RELATIONS)
LOADED = f"img[src], script[src], iframe[src], source[src], link[href]:not({IDLE})"


def problems(site: Path) -> Iterator[str]:
    """Say which links of a site lead nowhere, and what comes from other hosts."""
    pages = {
        path.resolve(): BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
        for path in site.rglob("*.html")
        if "_static" not in path.parts  # a theme keeps templates there
    }
    targets = {
        path: {str(tag.get(name)) for tag in page.find_all(True) for name in ("id", "name")}
        for path, page in pages.items()
    }
    for path, page in pages.items():
        where = path.relative_to(site.resolve())
        loaded = [str(tag.get("src", tag.get("href"))) for tag in page.select(LOADED)]
        for address in loaded + [str(tag["href"]) for tag in page.find_all("a", href=True)]:
            (file, anchor), outer = urldefrag(address), urlsplit(address)
            if outer.scheme or outer.netloc:
                if address in loaded and outer.scheme in ("http", "https", ""):
                    yield f"{where}: loads {address}"
                continue
            target = (path.parent / unquote(file.partition("?")[0])).resolve() if file else path
            if not target.exists():
                yield f"{where}: {address} does not exist"
            elif anchor and target in pages and unquote(anchor) not in targets[target]:
                yield f"{where}: {address} has no such place"


if __name__ == "__main__":
    found = sorted(set(problems(Path(sys.argv[1]))))
    print("\n".join(found) or "every internal link leads somewhere")
    sys.exit(bool(found))
