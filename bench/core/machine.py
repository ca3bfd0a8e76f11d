"""machine.py - where a measurement was made: GPU, driver, versions, commit, date."""

import datetime
import pathlib
import re
import subprocess

import torch

TOP = pathlib.Path(__file__).resolve().parents[2]


def driver():
    try:
        text = pathlib.Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return "unknown"
    found = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", text)
    return found.group(1) if found else "unknown"


def commit():
    done = subprocess.run(
        ["git", "-C", str(TOP), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def fields(named_commit=None):
    versions = {"torch": torch.__version__}
    return dict(gpu=torch.cuda.get_device_name(), driver=driver(), versions=versions, commit=named_commit or commit())


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
