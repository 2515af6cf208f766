"""Make the pictures of the console for the documents: `python tests/support/console_pictures.py FOLDER`."""

import sys
import tempfile
import threading
from pathlib import Path

from browser import BrowserPage, open_browser
from live_platform import LivePlatform

SHOP = """
import time
import aliquot
app = aliquot.App("shop")

@app.function(gpu=0.5)
def classify(seconds: float = 0.05):
    time.sleep(seconds)

@app.function(gpu=1.0)
def train(seconds: float = 0.8):
    time.sleep(seconds)

if __name__ == "__main__":
    classify.remote(), train.remote()
    calls = [train.spawn() for _ in range(8)] + [classify.spawn() for _ in range(80)]
    for call in calls:
        call.get()
"""


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary, open_browser() as browser:
        (Path(temporary) / "shop.py").write_text(SHOP)
        with LivePlatform(Path(temporary), "--devices", "host:2", "--slots", "2") as platform:
            tenants = {"labs": platform.create_namespace("labs"), "shop": platform.create_namespace("shop")}
            for key in tenants.values():
                platform.aliquot("deploy", "shop.py", **as_tenant(platform, key))
            address = platform.aliquot("console", "--no-browser").strip()
            with BrowserPage(browser) as shown:
                take_all(shown, platform, tenants, address, folder)


def as_tenant(platform: LivePlatform, key: str) -> dict[str, str]:
    return {"ALIQUOT_URL": platform.url, "ALIQUOT_KEY": key}


def take_all(shown: BrowserPage, platform: LivePlatform, tenants: dict[str, str], address: str, folder: Path) -> None:
    """Take the pictures while two tenants call their functions."""
    page = shown.page

    def call_often(key: str) -> None:
        for _ in range(4):
            platform.run("python", "shop.py", **as_tenant(platform, key))

    loads = [threading.Thread(target=call_often, args=(key,)) for key in tenants.values()]
    for load in loads:
        load.start()
    page.goto(address)
    page.wait_for_selector("td:text('shop.train')")
    page.wait_for_timeout(40_000)  # so that a minute has something to show
    page.screenshot(path=folder / "console.png", clip={"x": 0, "y": 0, "width": 1280, "height": 1180}, full_page=True)
    for load in loads:
        load.join()
    page.evaluate("location.hash = '#/activations?name=shop.classify&namespace=labs&wait=0.5'")
    page.wait_for_selector("tr.call")
    page.screenshot(path=folder / "console-calls.png", clip={"x": 0, "y": 0, "width": 1280, "height": 620})
    page.locator("tr.call a[data-row]").first.click()
    page.wait_for_selector("caption:text('Where it was, and why')", timeout=60_000)
    page.screenshot(path=folder / "console-call.png", clip={"x": 0, "y": 0, "width": 1280, "height": 620})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
