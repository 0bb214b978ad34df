"""Tests of scripts/book_pages.py: the contents have each page, and the copies lead to each other, to the forge, or out."""

import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import book_pages

ROOT = pathlib.Path(__file__).resolve().parent.parent
FORGE = "https://forge.example/blob/main"


class Book(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.chdir(ROOT)
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.book = pathlib.Path(folder.name)
        book_pages.main(cls.book, FORGE, "https://site.example/")

    def test_the_contents_have_each_page_once(self):
        listed = [page for _, page in book_pages.entries(pathlib.Path(book_pages.CONTENTS).read_text()) if page]
        pages = {path.as_posix() for path in pathlib.Path("docs").glob("*.md")} - {book_pages.CONTENTS}
        self.assertEqual(len(listed), len(set(listed)))
        self.assertEqual({page for page in listed if page.startswith("docs/")}, pages)

    def test_links_of_the_copies_lead_to_copies_or_to_the_forge(self):
        followed = 0
        for page in (self.book / "markdown").rglob("*.md"):
            for link in book_pages.LINK.findall(page.read_text()):
                target = link.partition("#")[0]
                if link.startswith(FORGE):
                    self.assertTrue((ROOT / target.removeprefix(FORGE + "/")).exists(), f"{page}: {link}")
                elif target and "://" not in link and not link.startswith("mailto:"):
                    copies = [page.parent / target, self.book / "pages" / page.relative_to(self.book / "markdown").parent / target]
                    self.assertTrue(any(copy.exists() for copy in copies), f"{page}: {link}")
                else:
                    continue
                followed += 1
        self.assertGreater(followed, 100)

    def test_a_vulnerability_is_reported_at_the_forge(self):
        for copy in ["pages", "markdown"]:
            self.assertIn("https://forge.example/security/advisories/new", (self.book / copy / "SECURITY.md").read_text())

    def test_models_get_a_sentence_and_an_address_of_each_page(self):
        lines = (self.book / "markdown/llms.txt").read_text().splitlines()
        self.assertEqual(lines[0], "# sekisho")
        self.assertIn("MCP gateway", lines[2])
        entries = [line for line in lines if line.startswith("- ")]
        self.assertGreater(len(entries), 30)
        for entry in entries:
            self.assertRegex(entry, r"^- \[[^]]+\]\(https://site\.example/[\w/.-]+\.md\): .{10,}$")

    def test_an_index_is_found_where_mdbook_makes_it(self):
        text = book_pages.INDEX_LINK.sub(r"](\1index.md\2", f"[a](../README.md#b) [c](x.md) [d]({FORGE}/README.md)")
        self.assertEqual(text, f"[a](../index.md#b) [c](x.md) [d]({FORGE}/README.md)")


if __name__ == "__main__":
    unittest.main()
