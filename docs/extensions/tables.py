"""Tables in Markdown."""


def markdown_table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Table in Markdown; an empty one is left out."""
    if not rows:
        return "None."
    cells = [header, ("---",) * len(header), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |"
        for row in cells
    )
