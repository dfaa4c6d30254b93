"""Find an installed Chromium for the tests of the HTML page, with the arguments to start it."""

from __future__ import annotations

import shutil

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
ARGUMENTS = (  # no requests of its own
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


def find_browser() -> str | None:
    """Return the path of Chromium or of a browser based on it, or None if there is none."""
    for name in NAMES:
        path = shutil.which(name)
        if path is not None:
            return path
    return None
