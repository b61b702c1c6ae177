"""A real Chromium without a window, driven by its own protocol over two pipes."""

from __future__ import annotations

import base64
import json
import os
import queue
import shutil
import signal
import subprocess
import threading
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.waits import HANG_S, until

_BUSY = "responded with a status of 503"
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str:
    """The program of $CHROMIUM, or one on the PATH. A machine without fails, and is told what to do."""
    for name in filter(None, (os.environ.get("CHROMIUM"), *NAMES)):
        found = shutil.which(name)
        if found is not None:
            return found
    raise AssertionError(
        "the dashboard is tested in a real Chromium, and there is none: run scripts/ensure-chromium "
        "(as root), or install Chromium or Chrome, or name it in CHROMIUM"
    )


class Browser:
    """One browser; its pages are apart from each other."""

    def __init__(self, directory: Path) -> None:
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        command = [
            find_chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--hide-scrollbars", "--no-first-run", "--mute-audio", f"--user-data-dir={directory}",
            "--remote-debugging-pipe", "about:blank",
        ]  # fmt: skip
        # The browser reads file 3 and writes file 4.
        pipes = f'exec "$@" 3<&{to_read} 4>&{to_write}'
        with open(directory / "chromium.log", "wb") as log:
            self._process = subprocess.Popen(
                ["bash", "-c", pipes, "chromium", *command],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(to_read, to_write),
                start_new_session=True,
            )  # fmt: skip
        os.close(to_read)
        os.close(to_write)
        self._number = 0
        self._lock = threading.Lock()
        self._answers: dict[int, Future[dict[str, Any]]] = {}
        self.events: dict[str, queue.SimpleQueue[dict[str, Any]]] = {}
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        with open(self._read, "rb") as file:
            left = b""
            while part := os.read(file.fileno(), 1 << 20):
                *messages, left = (left + part).split(b"\0")
                for text in messages:
                    self._take(json.loads(text))
        for future in self._answers.values():
            future.cancel()

    def _take(self, message: dict[str, Any]) -> None:
        if "id" in message:
            future = self._answers.pop(message["id"])
            if "error" in message:
                future.set_exception(AssertionError(str(message["error"])))
            else:
                future.set_result(message["result"])
        elif message.get("sessionId") in self.events:
            self.events[message["sessionId"]].put(message)

    def call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        future: Future[dict[str, Any]] = Future()
        with self._lock:
            self._number += 1
            number = self._number
            self._answers[number] = future
            message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
            if session:
                message["sessionId"] = session
            os.write(self._write, json.dumps(message).encode() + b"\0")
        return future.result(HANG_S)

    def page(self, url: str, width: int = 1280, height: int = 900, *, dark: bool = False) -> Page:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.events[session] = queue.SimpleQueue()
        return Page(self, session, target, url, width, height, dark)

    def close(self) -> None:
        with suppress(AssertionError, OSError, CancelledError, TimeoutError):
            self.call("Browser.close")
        try:
            self._process.wait(HANG_S)
        except subprocess.TimeoutExpired:
            pass
        with suppress(ProcessLookupError):  # its helpers
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._thread.join(HANG_S)
        os.close(self._write)


class Page:
    """A page at one size and in one colour scheme."""

    def __init__(
        self,
        browser: Browser,
        session: str,
        target: str,
        url: str,
        width: int,
        height: int,
        dark: bool,
    ) -> None:
        self._browser, self._session, self._target = browser, session, target
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.resize(width, height)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.call("Page.navigate", url=url)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
            mobile=False,
        )  # fmt: skip

    def run(self, script: str) -> Any:
        """What an expression comes to, as JSON."""
        told = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def until(self, script: str) -> Any:
        """Waits until an expression is true of the page."""
        return until(lambda: self.run(script), lambda: f"not so: {script}\n{self.text()}")

    def text(self, selector: str = "body") -> str:
        return str(self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def until_says(self, text: str, selector: str = "body") -> None:
        self.until(
            f"(document.querySelector({json.dumps(selector)})?.innerText ?? '')"
            f".includes({json.dumps(text)})"
        )

    def press(self, key: str) -> None:
        """Presses a key as a person would: Tab, Enter, ArrowRight, ..."""
        codes = {"Tab": 9, "Enter": 13, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38,
                 "ArrowRight": 39, "ArrowDown": 40}  # fmt: skip
        for kind in ("rawKeyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key,
                windowsVirtualKeyCode=codes[key],
            )  # fmt: skip

    def complaints(self) -> list[str]:
        """What the browser has complained of: errors, and what the page's policy has blocked. That a busy tracker was
        not heard within the page's time (503) is none: the page shows it, and asks again."""
        found = []
        events = self._browser.events[self._session]
        while not events.empty():
            event = events.get()
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(event["params"]["exceptionDetails"]))
            elif event["method"] == "Log.entryAdded":
                entry = event["params"]["entry"]
                if entry["level"] == "error" and _BUSY not in entry["text"]:
                    found.append(f"{entry['text']} {entry.get('url', '')}")
        return found

    def screenshot(self, path: Path) -> None:
        """The whole page, as high as it is."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        told = self.call(
            "Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(told["data"]))

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)
