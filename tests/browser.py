"""Where to find a Chromium, for the tests of the page."""

from __future__ import annotations

import shutil

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")


def find_browser() -> str | None:
    """The path of a Chromium or one of its kin, if there is one."""
    return next(filter(None, map(shutil.which, NAMES)), None)
