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
            platform.aliquot("deploy", "shop.py")
            address = platform.aliquot("console", "--no-browser").strip()
            with BrowserPage(browser) as shown:
                load = threading.Thread(target=platform.run, args=("python", "shop.py"))
                load.start()
                shown.page.goto(address)
                shown.page.wait_for_selector("td:text('shop.train')")
                shown.page.wait_for_timeout(1500)
                shown.page.screenshot(path=folder / "console.png")
                load.join()
                shown.page.evaluate("location.hash = '#/activations?name=shop.train'")
                shown.page.locator("tr", has_text="shop.train").locator("a[data-row]").first.click()
                shown.page.wait_for_selector("caption:text('Where it was, and why')")
                shown.page.screenshot(
                    path=folder / "console-call.png", clip={"x": 0, "y": 0, "width": 1280, "height": 620}
                )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
