"""Where to find a Chromium, for the tests of the page, and how to start it."""

from __future__ import annotations

import shutil

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
ARGUMENTS = (  # it asks nobody for anything
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


def find_browser() -> str | None:
    """The path of a Chromium or one of its kin, if there is one."""
    return next(filter(None, map(shutil.which, NAMES)), None)
