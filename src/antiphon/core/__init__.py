"""The vocabulary and the state-machine contract that everything else speaks; no I/O, no clock, no randomness."""

from antiphon.core.buffers import Buffers
from antiphon.core.channel import Transport
from antiphon.core.component import Component, NoOptions, OrderingProtocol
from antiphon.core.contract import Command, Timer, Wire
from antiphon.core.declaration import Assumptions, Declaration, Detector, Failures, FaultModel, Watched
from antiphon.core.gather import Gather
from antiphon.core.host import Host
from antiphon.core.model import GroupId, Message, MessageId, ProcessId, Topology, ViewId, parse_groups
from antiphon.core.options import option_choices, parse_options
from antiphon.core.process import Process
from antiphon.core.promises import Promise
from antiphon.core.unordered import Heap, Table

__all__ = [
    "Assumptions",
    "Buffers",
    "Command",
    "Component",
    "Declaration",
    "Detector",
    "Failures",
    "FaultModel",
    "Gather",
    "GroupId",
    "Heap",
    "Host",
    "Message",
    "MessageId",
    "NoOptions",
    "OrderingProtocol",
    "Process",
    "ProcessId",
    "Promise",
    "Table",
    "Timer",
    "Topology",
    "Transport",
    "ViewId",
    "Watched",
    "Wire",
    "option_choices",
    "parse_groups",
    "parse_options",
]
