"""setuptools, whose editable installations also have `pyspark_ray_snapshot` as a file beside the other packages.

Spark finds data sources among the modules that it can list, and what setuptools maps to a folder is not listed.
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403 - all that a front end may call

FOUND = "pyspark_ray_snapshot/__init__.py"


def build_editable(wheel_directory: str, *settings: Any, **named: Any) -> str:
    """As setuptools does, and that file."""
    name: str = build_meta.build_editable(wheel_directory, *settings, **named)
    wheel, code = Path(wheel_directory, name), Path("spark_jobs", FOUND).read_bytes()
    with zipfile.ZipFile(wheel) as packed:
        files = {item: packed.read(item) for item in packed.namelist()}
    digest = base64.urlsafe_b64encode(hashlib.sha256(code).digest()).rstrip(b"=").decode()
    record = next(item for item in files if item.endswith(".dist-info/RECORD"))
    files[record] += f"{FOUND},sha256={digest},{len(code)}\n".encode()
    with zipfile.ZipFile(wheel, "w") as packed:
        for item, content in (files | {FOUND: code}).items():
            packed.writestr(item, content)
    return name
