"""Every link of every page leads somewhere: to a file of the project, and to a heading that is there (the site's own: site_test.py)."""

import os
import pathlib
import re
import unittest

SOURCE = pathlib.Path(os.environ["PROJECT_SOURCE"])
LINK = re.compile(r"\]\(([^()\s]+)\)")


def pages():
    yield from (SOURCE / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"))
    yield from sorted((SOURCE / "docs").glob("*.md"))
    yield from sorted((SOURCE / "examples").rglob("*.md"))
    yield from chapters()


def chapters():
    """The READMEs of the folders, which belong to docs/design.md."""
    return sorted(SOURCE.glob("*/README.md"))


def prose(text: str) -> str:
    """Without what is code."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))


def anchors(text: str) -> set[str]:
    """A page's headings as GitHub names them: lower case, without punctuation, spaces as hyphens, numbered where they come again."""
    found: list[str] = []
    for heading in re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()).strip().replace(" ", "-")
        found.append(name + (f"-{found.count(name)}" if name in found else ""))
    return set(found)


class Links(unittest.TestCase):
    def test_each_leads_somewhere(self):
        count = 0
        for page in pages():
            for target in LINK.findall(prose(page.read_text())):
                if re.match(r"[a-z]+:", target):
                    continue
                count += 1
                name, _, anchor = target.partition("#")
                file = (page.parent / name) if name else page
                with self.subTest(page=page.name, link=target):
                    self.assertTrue(file.exists(), f"there is no {file}")
                    if anchor:
                        self.assertIn(anchor, anchors(file.read_text()))
        self.assertGreater(count, 200)

    def test_chapters_name_files_that_exist(self):
        count = 0
        for chapter in chapters():
            self.assertIn(f"(../{chapter.parent.name}/README.md)", (SOURCE / "docs/design.md").read_text())
            self.assertLessEqual(len(chapter.read_text().splitlines()), 40, chapter)
            for name in re.findall(r"`([\w/.-]+\.(?:h|cpp|py|cmake|in))`", chapter.read_text()):
                with self.subTest(chapter=chapter.parent.name, file=name):
                    folders = (chapter.parent, *(SOURCE / "include/ddprun" / part / chapter.parent.name for part in ("", "detail")))
                    self.assertTrue((SOURCE / name).is_file() or any(found for folder in folders for found in folder.rglob(name)))
                    count += 1
        self.assertGreater(count, 40)

    def test_addresses_are_in_one_file(self):
        addresses = SOURCE / "cmake/ProjectAddresses.cmake"
        known = [address.partition("<")[2].rstrip(">") or address for address in re.findall(r'set\(\w+ "(.*)"\)', addresses.read_text())]
        self.assertEqual(len(known), 4)
        files = [*SOURCE.glob("*.*"), *(file for folder in ("docs", "cmake", "scripts", ".github") for file in (SOURCE / folder).rglob("*"))]
        for file in files:
            if file.is_file() and file != addresses and b"\0" not in file.read_bytes():
                for address in known:
                    self.assertNotIn(address, file.read_text(errors="replace"), file)

    def test_headings_have_githubs_names(self):
        text = "# Nodes that come and go\n## What's new, in `ddprun`?\n```sh\n# no heading\n```\n## A\n## A\n"
        self.assertEqual(anchors(text), {"nodes-that-come-and-go", "whats-new-in-ddprun", "a", "a-1"})


if __name__ == "__main__":
    unittest.main(verbosity=2)
