"""A headless Chromium that tests can type into: commands and events of its debugging protocol, over a pipe."""

import base64
import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
KEYS = {"ArrowUp": 38, "ArrowDown": 40, "ArrowLeft": 37, "ArrowRight": 39, "Tab": 9}


def program():
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Chromium:
    """One page; `console` is what it said since it was opened."""

    def __init__(self, profile):
        theirs_in, self.ours_out = os.pipe()
        self.ours_in, theirs_out = os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs_in, theirs_out)]
        command = [
            program(),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--hide-scrollbars",
            f"--user-data-dir={profile}",
            "--remote-debugging-pipe",
        ]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(profile)},
            close_fds=False,
            preexec_fn=lambda: (os.dup2(ends[0], 3), os.dup2(ends[1], 4)),  # noqa: PLW1509  # where it expects them
        )
        for end in (theirs_in, theirs_out, *ends):
            os.close(end)
        self.rest, self.number, self.session = b"", 0, None
        self.console, self.asked, self.events = [], {}, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self):
        self.session = None
        self.call("Browser.close")
        self.process.wait(timeout=30)
        os.close(self.ours_in)
        os.close(self.ours_out)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.ours_out, json.dumps(message).encode() + b"\0")
        mine = self.number
        while (answer := self._next()).get("id") != mine:
            self._heed(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def _next(self):
        while b"\0" not in self.rest:
            part = os.read(self.ours_in, 1 << 20)
            if not part:
                raise RuntimeError("the browser has gone")
            self.rest += part
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def _heed(self, event):
        method, told = event.get("method"), event.get("params", {})
        self.events.append(method)
        if method == "Runtime.consoleAPICalled":
            self.console.append(str([argument.get("value") for argument in told["args"]]))
        elif method == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            self.console.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded":
            self.console.append(told["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.asked[told["requestId"]] = told["request"]["url"]
        elif method == "Network.loadingFailed" and told.get("blockedReason") == "csp":
            del self.asked[told["requestId"]]

    def open(self, file, width=1200, height=900, scheme="light"):
        media = [{"name": "prefers-color-scheme", "value": scheme}]
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Emulation.setEmulatedMedia", features=media)
        for heard in (self.events, self.console, self.asked):
            heard.clear()
        self.call("Page.navigate", url=Path(file).resolve().as_uri())
        while "Page.loadEventFired" not in self.events:
            self._heed(self._next())

    @property
    def requests(self):
        """What it asked for since it was opened, without what its policy held back."""
        return list(self.asked.values())

    def value(self, expression):
        """Of an expression in the page, as JSON has it."""
        found = self.call("Runtime.evaluate", expression=f"JSON.stringify({expression})", returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"].get("exception", {}).get("description"))
        return json.loads(found["result"].get("value", "null"))

    def press(self, key):
        code = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, **code)

    def point(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def type(self, element_id, text):
        """Replace what is in a field, as somebody at the keyboard would."""
        self.value(f"(document.getElementById({element_id!r}).focus(), document.activeElement.select(), null)")
        self.call("Input.insertText", text=text)

    def picture(self, file, full=True):
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=full)
        Path(file).write_bytes(base64.b64decode(shot["data"]))
