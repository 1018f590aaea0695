"""Headless Chromium over selenium: what it shows, what it asks for and what it complains about."""

import json
import os
import shutil
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update"
).split()
WAIT_S = 60.0
TINT = """
    const options = { willReadFrequently: true };
    const canvas = document.createElement('canvas').getContext('2d', options);
    for (const selector of arguments) {
        canvas.fillStyle = getComputedStyle(document.querySelector(selector)).backgroundColor;
        canvas.fillRect(0, 0, 1, 1);
    }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);"""


class Browser:
    """One window."""

    def __init__(self, profile: Path) -> None:
        """Fails the test where there is no Chromium, unless OUTRIDER_NO_BROWSER says so."""
        if os.environ.get("OUTRIDER_NO_BROWSER"):
            pytest.skip("OUTRIDER_NO_BROWSER is set")
        chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
        if chromium is None or driver is None:
            pytest.fail(
                "The playground's tests need Chromium: apt-get install chromium chromium-driver; "
                "or set OUTRIDER_NO_BROWSER=1 to go without them",
                pytrace=False,
            )
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(driver))
        self.driver.set_script_timeout(WAIT_S)

    def show(self, url: str, width: int = 1280, height: int = 860, scheme: str = "light") -> None:
        """Open a page in a window of this size."""
        self.complaints()
        self.requests()
        self.resize(width, height)
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        self.driver.get(url)

    def resize(self, width: int, height: int) -> None:
        """Of the page, without the window's frame."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script returns, or the promise it returns comes to."""
        return self.driver.execute_script(script, *arguments)

    def type_into(self, name: str, text: str) -> None:
        """Into the field of this name, in place of what it holds."""
        field = self.find(f"[name={name}]")
        field.clear()
        field.send_keys(text)

    def choose(self, value: str) -> None:
        """The radio button of this value."""
        self.run("arguments[0].click()", self.find(f"[type=radio][value={value}]"))

    def tint(self, front: str, back: str) -> tuple[int, int, int]:
        """The background colour of one element over that of another, as the eye gets it."""
        red, green, blue = self.run(TINT, back, front)
        return red, green, blue

    def wait(self, condition: str) -> Any:
        """Until an expression in JavaScript is true."""
        waiting = WebDriverWait(self.driver, WAIT_S, poll_frequency=0.02)
        return waiting.until(lambda _: self.run(f"return {condition}"), f"never: {condition}")

    def complaints(self) -> list[str]:
        """Warnings and errors in the console since the last call."""
        entries = self.driver.get_log("browser")
        return [entry["message"] for entry in entries if entry["level"] in ("WARNING", "SEVERE")]

    def requests(self) -> list[str]:
        """URLs that pages asked for since the last call; the browser's own pages do not count."""
        entries = [json.loads(e["message"])["message"] for e in self.driver.get_log("performance")]
        sent = [e["params"] for e in entries if e["method"] == "Network.requestWillBeSent"]
        ours = [params for params in sent if params["documentURL"].startswith("http")]
        return [params["request"]["url"] for params in ours]


def colours(png: bytes) -> Counter[tuple[int, int, int]]:
    """How many pixels of each colour. Source: PNG specification 12.3, filters of a line."""
    width, height = (int.from_bytes(png[at : at + 4], "big") for at in (16, 20))
    depth, kind, interlaced = png[24], png[25], png[28]
    assert (depth, interlaced) == (8, 0)
    num_channels = {2: 3, 6: 4}[kind]
    data, at = b"", 8
    while at < len(png):
        size = int.from_bytes(png[at : at + 4], "big")
        if png[at + 4 : at + 8] == b"IDAT":
            data += png[at + 8 : at + 8 + size]
        at += size + 12
    lines = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, -1)
    above = np.zeros((width, num_channels), np.int64)
    found: Counter[tuple[int, int, int]] = Counter()
    for line in lines:
        above = _unfiltered(line[0], line[1:].reshape(width, num_channels).astype(np.int64), above)
        found.update(map(tuple, above[:, :3].tolist()))
    return found


def is_near(colour: tuple[int, int, int], other: tuple[int, int, int]) -> bool:
    """Within what blending rounds."""
    return all(abs(one - two) <= 2 for one, two in zip(colour, other, strict=True))


def _unfiltered(
    kind: int, line: np.ndarray[Any, Any], above: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    if kind in (0, 2):
        return line if kind == 0 else (line + above) % 256
    if kind == 1:
        return np.cumsum(line, axis=0) % 256
    left = corner = np.zeros_like(above[0])
    for at, up in enumerate(above):
        guess = (left + up) // 2 if kind == 3 else _paeth(left, up, corner)
        left = line[at] = (line[at] + guess) % 256
        corner = up
    return line


def _paeth(
    left: np.ndarray[Any, Any], up: np.ndarray[Any, Any], corner: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    to_left, to_up, to_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
    is_left = (to_left <= to_up) & (to_left <= to_corner)
    return np.where(is_left, left, np.where(to_up <= to_corner, up, corner))
