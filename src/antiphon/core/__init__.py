"""The vocabulary and the state-machine contract that everything else speaks; no I/O, no clock, no randomness."""

from antiphon.core.component import Component, NoOptions, OrderingProtocol, Wire
from antiphon.core.declaration import Assumptions, Channels, Declaration, Detector, Failures, FaultModel, Promise
from antiphon.core.model import GroupId, Message, MessageId, ProcessId, Timestamp, Topology, parse_groups, user_name
from antiphon.core.options import option_choices, parse_options
from antiphon.core.process import Process

__all__ = [
    "Assumptions",
    "Channels",
    "Component",
    "Declaration",
    "Detector",
    "Failures",
    "FaultModel",
    "GroupId",
    "Message",
    "MessageId",
    "NoOptions",
    "OrderingProtocol",
    "Process",
    "ProcessId",
    "Promise",
    "Timestamp",
    "Topology",
    "Wire",
    "option_choices",
    "parse_groups",
    "parse_options",
    "user_name",
]
