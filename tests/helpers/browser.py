"""A Chromium that tests drive."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--force-device-scale-factor=1",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip


@contextmanager
def chromium(width: int, height: int = 900, dark: bool = False) -> Iterator[Any]:
    """A browser with a window of that size and no memory of others, which knows no host but this one. Skips where
    there is none.
    """
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium drives the browser: pip install selenium")
    service = pytest.importorskip("selenium.webdriver.chrome.service")
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("chromium and chromedriver are needed")
    with tempfile.TemporaryDirectory() as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = browser
        for option in (*OPTIONS, f"--user-data-dir={profile}"):
            options.add_argument(option)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        page = webdriver.Chrome(options, service.Service(driver))
        try:
            page.execute_cdp_cmd(
                "Emulation.setDeviceMetricsOverride",
                {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
            )
            scheme = {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]}
            page.execute_cdp_cmd("Emulation.setEmulatedMedia", scheme)
            yield page
        finally:
            page.quit()


def until(page: Any, script: str) -> Any:
    """What the script returns, as soon as that is anything."""
    from selenium.webdriver.support.ui import WebDriverWait  # pyright: ignore[reportMissingImports]

    return WebDriverWait(page, 60).until(lambda browser: browser.execute_script(script))
