"""Campaigns: thousands of cases that try to break headway, each in a process with limits.

A campaign is one file here and one line in `CAMPAIGNS`. `python -m tests.campaigns NAME --seed N --minutes M` runs it,
`python -m tests.campaigns report` writes the table of docs/reliability.md from the stored records.
"""

import importlib
from typing import Any

from tests.campaigns.campaign import Campaign

CAMPAIGNS = {
    "data": "tests.campaigns.data:DataCampaign",
}


def build_campaign(name: str) -> Campaign[Any]:
    """The campaign of this name; its modules are imported only now."""
    module, _, attribute = CAMPAIGNS[name].partition(":")
    campaign: Campaign[Any] = getattr(importlib.import_module(module), attribute)()
    assert campaign.name == name
    return campaign
