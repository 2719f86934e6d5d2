"""What must survive a crash: logs whose records are synced together, and who may write them."""

from antiphon.runtime.disk.committer import Committer
from antiphon.runtime.disk.delivered import DeliveredLog, events_of
from antiphon.runtime.disk.jobs import DiskJobs
from antiphon.runtime.disk.journal import InputJournal
from antiphon.runtime.disk.kept import FolderSegments
from antiphon.runtime.disk.locks import acquired
from antiphon.runtime.disk.log import JournalIdentity, SegmentedLog
from antiphon.runtime.disk.lookup import Lookup
from antiphon.runtime.disk.retain import Retain
from antiphon.runtime.disk.scan import read_beginning, read_whole
from antiphon.runtime.disk.segments import identity_of, segment_files
from antiphon.runtime.disk.spill import Spills
from antiphon.runtime.disk.watch import DiskWatch, UnderWay

__all__ = [
    "Committer",
    "DeliveredLog",
    "DiskJobs",
    "DiskWatch",
    "FolderSegments",
    "InputJournal",
    "JournalIdentity",
    "Lookup",
    "Retain",
    "SegmentedLog",
    "Spills",
    "UnderWay",
    "acquired",
    "events_of",
    "identity_of",
    "read_beginning",
    "read_whole",
    "segment_files",
]
