"""Copies the pages of the documentation for mdBook, and writes llms.txt: book_pages.py FOLDER SOURCE_URL SITE_URL.

The copies keep their places, so that links between pages stay. Links to other files lead to SOURCE_URL.
"""

import pathlib
import posixpath
import re
import shutil
import sys

CONTENTS = "docs/SUMMARY.md"
LINK = re.compile(r"\]\(([^)\s]+)\)")
# mdBook makes index.html of README.md, and does not follow in links.
INDEX_LINK = re.compile(r"\]\(([^):\s]*)README\.md([)#])")
# From a file's page on the forge to another page of the repository there.
FORGE_PAGE = re.compile(r"^(\[[^]]+\]: )\.\./\.\./", re.MULTILINE)
ENTRY = re.compile(r"^(?:- )?\[([^]]+)\]\(([^)]+)\)$")


def entries(contents):
    """The lines of the contents: (heading, None) of a part, or (title, path of the page in the repository)."""
    for line in contents.splitlines()[1:]:
        if line.startswith("# "):
            yield line[2:], None
        elif found := ENTRY.match(line):
            yield found[1], posixpath.normpath(posixpath.join(posixpath.dirname(CONTENTS), found[2]))


def with_links(text, page, copied, source_url):
    """The text of a page, whose links to files that are not copied lead to the forge."""

    def replaced(found):
        target, mark, heading = found[1].partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
        if path in copied:
            return found[0]
        return f"]({source_url.rstrip('/')}/{path}{mark}{heading})"

    repository = source_url.partition("/blob/")[0]
    return LINK.sub(replaced, FORGE_PAGE.sub(lambda found: f"{found[1]}{repository}/", text))


def first_sentence(text):
    """The first sentence below the title, without the form of links and words."""
    paragraphs = [part for part in text.split("\n\n")[1:] if part[:3] != "```" and part[:1] not in "#|!-<"]
    plain = re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", " ".join(paragraphs[0].split()) if paragraphs else "")
    return re.split(r"(?<=\.)\s", plain.replace("**", ""))[0].rstrip(":")


def llms_text(pages, site_url):
    """The contents for models (llmstxt.org): a heading, what it is, and the pages as Markdown with a sentence each."""
    site = site_url.rstrip("/") + "/" if site_url else ""
    lines = []
    for title, page, text in pages:
        if page is None:
            lines += ["", f"## {title}", ""]
        elif lines:
            lines.append(f"- [{title}]({site}{page}): {first_sentence(text)}")
        else:
            lines += [f"# {title.lower()}", "", f"> {first_sentence(text)}"]
    return "\n".join(lines) + "\n"


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def main(folder, source_url, site_url):
    root, folder = pathlib.Path.cwd(), pathlib.Path(folder)
    contents = (root / CONTENTS).read_text()
    found = list(entries(contents))
    copied = {page for _, page in found if page}
    copied |= {path.as_posix() for path in pathlib.Path("images").iterdir()}
    pages, markdown = [], []
    for title, page in found:
        text = with_links((root / page).read_text(), page, copied, source_url) if page else None
        pages.append((title, page, text))
        if page:
            write(folder / "pages" / page, INDEX_LINK.sub(r"](\1index.md\2", text))
            write(folder / "markdown" / page, text)
            markdown.append(f"<!-- {page} -->\n\n{text}")
    shutil.copytree("images", folder / "pages/images")
    shutil.copy("book.toml", folder)
    # Its links lead from the root of the copies.
    lines = [re.sub(LINK, lambda link: f"]({posixpath.normpath('docs/' + link[1])})", line) for line in contents.splitlines()]
    (folder / "pages/SUMMARY.md").write_text("\n".join(lines) + "\n")
    (folder / "markdown/llms.txt").write_text(llms_text(pages, site_url))
    (folder / "markdown/llms-full.txt").write_text("\n".join(markdown))


if __name__ == "__main__":
    main(*sys.argv[1:])
