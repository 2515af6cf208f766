"""Measurements in Debian's Chromium: the first load of the console, and a long list that is scrolled."""

import shutil
import time
from typing import Any, NamedTuple

from aliquot.testing.server import LiveServer
from aliquot_bench.console.readers import login_address

_OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
_SCROLL = """
async rows => {
  const list = document.querySelector(".calls");
  const frames = [];
  let last = performance.now(), nodes = 0, still = 0, before = -1;
  const whole = performance.now();
  while (still < 200 && performance.now() - whole < 60000) {
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    frames.push(now - last);
    last = now;
    nodes = Math.max(nodes, document.querySelectorAll("*").length);
    list.scrollTop += 600;
    still = list.scrollTop === before ? still + 1 : 0;
    before = list.scrollTop;
    const shown = Number((document.querySelector(".calls caption").innerText.match(/\\d+/) || [0])[0]);
    if (shown >= rows && still > 5) break;
  }
  const shown = Number((document.querySelector(".calls caption").innerText.match(/\\d+/) || [0])[0]);
  frames.sort((a, b) => a - b);
  return {shown, nodes, longest: frames[frames.length - 1], p99: frames[Math.floor(frames.length * 0.99)]};
}
"""


class PageFigures(NamedTuple):
    """The measurements of a browser."""

    load_bytes: int
    load_requests: int
    shown_s: float
    scrolled: int  # calls
    nodes: int  # elements of the page at the most
    longest_frame_ms: float
    p99_frame_ms: float


def why_not() -> str | None:
    """Return why no browser can be driven here, or None."""
    try:
        import playwright.sync_api  # noqa: F401, PLC0415 - it is installed for development only
    except ModuleNotFoundError:
        return "playwright is not installed"
    return None if shutil.which("chromium") else "Debian's package chromium is not installed"


def measure_pages(server: LiveServer, calls: int) -> PageFigures:
    """Load the overview in a new browser, then scroll through so many calls."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - it is installed for development only

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=_OPTIONS)
        try:
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            answers: list[Any] = []
            page.on("response", lambda answer: answers.append(answer))  # noqa: PLW0108 - it takes no method of a list
            address = login_address(server)
            began = time.perf_counter()
            page.goto(address, wait_until="commit")
            page.wait_for_selector(".cards .panel")
            shown_s = time.perf_counter() - began
            page.wait_for_selector("figure.chart")
            loaded = [one for one in answers if "stream" not in one.url]
            size = sum(len(one.body()) for one in loaded)
            requests = len(answers)
            page.evaluate("location.hash = '#/activations'")
            page.wait_for_selector(".calls tr.call")
            found = page.evaluate(_SCROLL, calls)
        finally:
            browser.close()
    return PageFigures(
        size, requests, shown_s, int(found["shown"]), int(found["nodes"]), found["longest"], found["p99"]
    )
