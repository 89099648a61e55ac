"""scripts/docs builds the site without a warning and without a network; in a browser every page loads, no link is dead, the search finds
things, and a phone shows all of it."""

import functools
import http.server
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time
import unittest
import urllib.parse

import browser

SOURCE = pathlib.Path(os.environ["PROJECT_SOURCE"])
WORK = pathlib.Path(os.environ["WORK"])
PHONE, DESK = 390, 1400
# What a page links to, and what of it a link can lead to.
LINKS = "[...document.querySelectorAll('a[href]')].map(a => a.href)"
NAMES = "[...document.querySelectorAll('[id]')].map(e => e.id)"
PICTURES = "[...document.images].filter(i => !i.complete || i.naturalWidth == 0).map(i => i.src)"
# What sticks out to the right and is in nothing that scrolls.
TOO_WIDE = """[...document.querySelectorAll('article *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1 && e.getBoundingClientRect().width > 0 &&
  !(function inside(p) { return p && (['auto', 'scroll', 'hidden'].includes(getComputedStyle(p).overflowX) || inside(p.parentElement)); })(e.parentElement))
  .slice(0, 3).map(e => e.tagName + ': ' + e.textContent.trim().slice(0, 60))"""


# What users type, and the pages of which one has to be among the first five results.
QUESTIONS = {
    "gradient accumulation": {"guide-accumulation"},
    "out of memory": {"faq", "guide-memory"},
    "resume after crash": {"checkpoints", "training", "faq"},
    "slurm": {"many-nodes"},
    "different batch sizes per rank": {"ddp", "faq"},
    "port already in use": {"many-nodes", "faq"},
    "NaN loss mixed precision": {"guide-mixed-precision", "amp", "faq"},
    "how to use multiple GPUs": {"guide-parallel"},
    "docker shared memory": {"faq"},
    "job hangs": {"watching"},
    "one rank is slow": {"watching", "faq"},
    "load pytorch checkpoint": {"checkpoints"},
    "custom dataset": {"guide-dataset"},
    "freeze layers fine tuning": {"guide-fine-tuning"},
    "exit code 137": {"errors", "faq"},
    "set random seed": {"faq", "port"},
    "libtorch version mismatch": {"install", "versions", "faq"},
    "gpu assignment CUDA_VISIBLE_DEVICES": {"launcher"},
    "learning rate warmup": {"schedules"},
    "run on two machines": {"many-nodes"},
}
MORE_QUESTIONS = {
    "training hangs at the end": {"watching", "ddp", "faq"},
    "docker shm too small": {"faq"},
    "model too large for one gpu": {"faq", "guide-memory"},
    "gradient clipping with ddp": {"faq", "optim"},
    "print only on rank 0": {"port", "collectives"},
    "NCCL error unhandled system error": {"faq", "errors", "watching"},
    "loss is different every run": {"faq"},
    "save best model": {"port", "checkpoints", "training"},
    "could not find package ddprun cmake": {"install"},
    "MASTER_ADDR not set": {"errors", "messages", "many-nodes"},
    "address already in use": {"faq", "many-nodes", "errors"},
    "one process per gpu": {"guide-parallel", "launcher"},
    "use bf16 instead of fp16": {"guide-mixed-precision", "amp"},
    "resume with fewer gpus": {"checkpoints", "training", "faq"},
    "processes keep running after ctrl c": {"launcher"},
    "slow data loading": {"data", "faq"},
    "start on several nodes without ssh": {"many-nodes", "launcher"},
    "parameters did not receive grad": {"ddp", "port"},
    "open python checkpoint in c++": {"checkpoints"},
    "pass environment variables to all ranks": {"launcher", "faq"},
}


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def build():
    """False where the tools are missing."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    result = subprocess.run([SOURCE / "scripts/docs", "--offline", "--output", WORK], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)  # fmt: skip
    if "is not installed" in result.stdout or "are not installed" in result.stdout:
        print("skipped:", result.stdout.strip())
        return False
    if result.returncode != 0:
        sys.exit(f"scripts/docs ended with {result.returncode}:\n{result.stdout}")
    return True


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.html = WORK / "html"
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=cls.html))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        cls.addClassCleanup(server.server_close)
        cls.addClassCleanup(server.shutdown)
        cls.root = f"http://127.0.0.1:{server.server_port}/"
        cls.pages = sorted(page.relative_to(cls.html).as_posix() for page in cls.html.rglob("*.html"))

    def test_each_page_loads_and_no_link_is_dead(self):
        links, names = {}, {}
        with browser.Browser(DESK) as window:
            for page in self.pages:
                self.assertEqual(window.open(self.root + page), [], page)
                self.assertEqual(window.evaluate(PICTURES), [], page)
                links[page] = window.evaluate(LINKS)
                names[page] = set(window.evaluate(NAMES))
        self.assertGreater(len(links), 150)
        for page, goals in links.items():
            for goal in goals:
                if not goal.startswith(self.root):
                    self.assertRegex(goal, r"^https?://", page)  # of others, which no test of ours asks
                    continue
                path, _, anchor = urllib.parse.unquote(goal.removeprefix(self.root)).partition("#")
                path = path.partition("?")[0] or "index.html"
                self.assertTrue((self.html / path).is_file(), f"{page} leads to {path}")
                if anchor and path.endswith(".html"):
                    self.assertIn(anchor, names[path], f"{page} leads to {path}#{anchor}")

    def first_results(self, window, words: str) -> list[str]:
        """The pages of the first five results."""
        window.open(f"{self.root}search.html?q={urllib.parse.quote(words)}")
        end = time.monotonic() + browser.PATIENCE
        count = None
        while count is None or window.evaluate("document.querySelectorAll('#search-results li').length") < count:
            self.assertLess(time.monotonic(), end, words)
            time.sleep(0.1)
            said = window.evaluate("(document.querySelector('#search-results .search-summary') ?? {innerText: ''}).innerText")
            if match := re.search(r"found (\d+|one) page|did not match", said):
                count = min(5, {None: 0, "one": 1}.get(match[1]) or int(match[1] or 0))
        links = window.evaluate("[...document.querySelectorAll('#search-results li > a')].map(a => a.href)")
        return [link.removeprefix(self.root).partition(".html")[0] for link in links[:5]]

    def test_the_search_finds_things(self):
        with browser.Browser(DESK) as window:
            for words, page in [("DistributedDataParallel", "api/ddp/distributed_data_parallel"), ("accumulation", "guide-accumulation"),
                                ("program not found", "messages")]:  # fmt: skip
                self.assertIn(page, self.first_results(window, words), words)

    def test_users_questions_find_a_page_that_answers_them(self):
        for page in set().union(*QUESTIONS.values(), *MORE_QUESTIONS.values()):
            self.assertTrue((self.html / f"{page}.html").is_file(), page)
        for questions in (QUESTIONS, MORE_QUESTIONS):
            with browser.Browser(DESK) as window:
                results = {words: self.first_results(window, words) for words in questions}
            missed = {words: found for words, found in results.items() if not questions[words] & set(found)}
            self.assertLessEqual(len(missed), 1, missed)

    def test_a_phone_shows_all_of_it(self):
        with browser.Browser(PHONE, 844) as window:
            for page in self.pages:
                window.open(self.root + page)
                self.assertEqual(window.evaluate("innerWidth"), PHONE)
                self.assertLessEqual(window.evaluate("document.scrollingElement.scrollWidth"), PHONE, f"{page}: {window.evaluate(TOO_WIDE)}")
                size = window.evaluate("parseFloat(getComputedStyle(document.querySelector('article p, article li, article h1, body')).fontSize)")
                self.assertGreaterEqual(size, 14, page)
                if page in ("index.html", "port.html", "messages.html", "api/ddp/distributed_data_parallel.html"):
                    window.screenshot(WORK / f"phone-{pathlib.Path(page).stem}.png")

    def test_charts_keep_their_size(self):
        for width in (PHONE, DESK):
            with browser.Browser(width, 844) as window:
                count = 0
                for page in ("programs", "gallery", "guide-allreduce", "watching", "many-nodes", "collectives"):
                    window.open(f"{self.root}{page}.html")
                    for shown, natural in window.evaluate("[...document.querySelectorAll('article img')].map(i => [i.clientWidth, i.naturalWidth])"):
                        self.assertGreaterEqual(shown, 0.99 * natural, page)
                        count += 1
                    self.assertLessEqual(window.evaluate("document.scrollingElement.scrollWidth"), width)
                self.assertGreater(count, 10)

    def test_options_have_anchors_and_unbroken_names(self):
        with browser.Browser(PHONE, 844) as window:
            window.open(self.root + "launcher.html#option-hang_timeout")
            self.assertEqual(window.evaluate("document.querySelector('a.option:target').innerText"), "--hang_timeout SECONDS")
            self.assertGreater(window.evaluate("document.querySelectorAll('a.option[id]').length"), 80)
            broken = window.evaluate("[...document.querySelectorAll('.option code')].filter(e => e.getClientRects().length > 1).map(e => e.innerText)")
            self.assertEqual(broken, [])

    def test_guides_and_reference_lead_to_each_other(self):
        with browser.Browser(DESK) as window:
            window.open(self.root + "optim.html")
            self.assertIn("api/optim/optimizers.html", " ".join(window.evaluate(LINKS)))
            window.open(self.root + "api/optim/optimizers.html")
            self.assertIn(self.root + "optim.html", window.evaluate("[...document.querySelectorAll('article a')].map(a => a.href)"))

    def test_the_reference_says_what_the_headers_say(self):
        with browser.Browser(DESK) as window:
            window.open(self.root + "api/ddp/distributed_data_parallel.html")
            text = window.evaluate("document.querySelector('article').innerText")
            self.assertIn("Wraps a model so that every rank", text)
            self.assertIn("auto loss = torch::mse_loss(model(x), y);", window.evaluate("document.querySelector('article pre:not(:has(.cpf))').innerText"))
            self.assertTrue(window.evaluate("!!document.getElementById(document.querySelector('dt.sig').id)"))
            self.assertGreater(window.evaluate("document.querySelectorAll('dt.sig').length"), 15)

    def test_it_has_a_dark_side(self):
        with browser.Browser(DESK) as window:
            colours = []
            for side in ("light", "dark"):
                window.page("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": side}])
                window.open(self.root + "index.html")
                colours.append(window.evaluate("getComputedStyle(document.body).backgroundColor"))
                window.screenshot(WORK / f"desk-{side}.png")
            self.assertNotEqual(*colours)


if __name__ == "__main__":
    if browser.found() is None:
        print("skipped: no Chromium is here (" + ", ".join(browser.NAMES) + ")")
        sys.exit(77)
    if not build():
        sys.exit(77)
    unittest.main(verbosity=2)
