"""The package travels with the job: Spark's workers get the very sources that this process runs, installed or not."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import antiphon

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def send_package(spark: SparkSession) -> None:
    """Give this package to the workers of a session, ahead of one that they have installed.

    What it needs in turn (msgspec, isal, pyarrow) is compiled for a machine, and is theirs to have.
    """
    source = Path(antiphon.__file__).parent
    if not source.is_dir():  # it came in an archive: spark-submit's --py-files has sent that already
        return
    folder = Path(tempfile.mkdtemp(prefix="antiphon-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # an executor that comes later fetches it from here, too
    archive = folder / "antiphon.zip"
    pack(source, archive)
    spark.addArtifacts(str(archive), pyfile=True)


def pack(source: Path, archive: Path) -> None:
    """All sources below a package's folder, as an archive from which Python imports."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(source.rglob("*.py")):
            packed.write(file, file.relative_to(source.parent))
