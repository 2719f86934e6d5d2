"""What users import: a client multicasts to any set of groups, and reads what a group delivers."""

from antiphon.client.client import Client, connect
from antiphon.client.subscription import Subscription
from antiphon.client.values import Batch, Delivery, Receipt
from antiphon.core.events import Gap, View

__all__ = ["Batch", "Client", "Delivery", "Gap", "Receipt", "Subscription", "View", "connect"]
