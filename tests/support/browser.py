"""A real browser for tests of the console: Debian's Chromium, driven by Playwright."""

import shutil
from contextlib import contextmanager

import pytest

try:
    from playwright.sync_api import sync_playwright
except ModuleNotFoundError:  # it is installed for development only
    sync_playwright = None

CHROMIUM = shutil.which("chromium")
needs_browser = pytest.mark.skipif(
    CHROMIUM is None or sync_playwright is None,
    reason="there is no Chromium: install Debian's package chromium to try the console in a browser",
)
SIZES = {"wide": (1280, 900), "narrow": (390, 800)}
_OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")


@contextmanager
def open_browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(_OPTIONS))
        try:
            yield browser
        finally:
            browser.close()


class BrowserPage:
    """A page of a new browser profile, with all that its scripts complained about."""

    def __init__(self, browser, size="wide", scheme="light"):
        width, height = SIZES[size]
        self.context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.complaints = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._heard)

    def _heard(self, message):
        refused = "Failed to load resource" in message.text  # an answer such as 401, which the page shows itself
        if message.type in {"error", "warning"} and not refused:
            self.complaints.append(message.text)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.context.close()
