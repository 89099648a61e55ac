"""A headless Chromium that is told what to do through its DevTools pipe: JSON messages that end with a zero byte. Standard library only."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 120  # seconds, for hangs


def found() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One window. `with Browser(width) as browser: browser.open(url); browser.evaluate("document.title")`."""

    def __init__(self, width: int, height: int = 900):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.number, self.events, self.buffer = 0, [], b""
        from_us, self.to_browser = os.pipe()
        self.from_browser, to_us = os.pipe()

        def move():  # the browser reads 3 and writes 4
            high = os.dup(from_us), os.dup(to_us)
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        command = [found(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe",
                   "--disable-background-networking", f"--user-data-dir={self.folder.name}", "about:blank"]  # fmt: skip
        self.process = subprocess.Popen(command, preexec_fn=move, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)  # fmt: skip
        os.close(from_us)
        os.close(to_us)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.page(domain + ".enable")
        # Not mobile: a page that needs more room than the width shows it, instead of being scaled down.
        self.page("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        os.close(self.to_browser)
        os.close(self.from_browser)
        self.folder.cleanup()

    def receive(self, until: float) -> dict:
        while b"\0" not in self.buffer:
            if not select.select([self.from_browser], [], [], max(0, until - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            more = os.read(self.from_browser, 1 << 16)
            if not more:
                raise RuntimeError("the browser has ended")
            self.buffer += more
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def call(self, method: str, session: str | None = None, **parameters) -> dict:
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        os.write(self.to_browser, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + PATIENCE
        while True:
            answer = self.receive(until)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def page(self, method: str, **parameters) -> dict:
        return self.call(method, self.session, **parameters)

    def wait_for(self, event: str):
        until = time.monotonic() + PATIENCE
        while not any(message.get("method") == event for message in self.events):
            self.events.append(self.receive(until))

    def open(self, url: str) -> list[str]:
        """Loads a page; what it complained of."""
        self.events.clear()
        result = self.page("Page.navigate", url=url)
        if "errorText" in result:
            return [result["errorText"]]
        self.wait_for("Page.loadEventFired")
        entries = [e["params"]["entry"] for e in self.events if e.get("method") == "Log.entryAdded"]
        complaints = [f"{entry['text']} {entry.get('url', '')}" for entry in entries if entry["level"] == "error"]
        complaints += [e["params"]["exceptionDetails"]["text"] for e in self.events if e.get("method") == "Runtime.exceptionThrown"]
        return complaints

    def evaluate(self, expression: str):
        result = self.page("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def screenshot(self, file):
        with open(file, "wb") as picture:
            picture.write(base64.b64decode(self.page("Page.captureScreenshot", format="png")["data"]))
