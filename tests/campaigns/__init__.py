"""Campaigns: thousands of cases that try to break headway, each in a process with limits.

A campaign is one file here and one line in `CAMPAIGNS`. `python -m tests.campaigns NAME --seed N --minutes M` runs it,
`python -m tests.campaigns report` writes the table of docs/reliability.md from the stored records.
"""

import importlib
from typing import Any

from tests.campaigns.campaign import Campaign

CAMPAIGNS = {
    "kills": "tests.campaigns.kills:KillsCampaign",  # first: it begins without threads
    "recipes": "tests.campaigns.recipes:RecipesCampaign",
    "runs": "tests.campaigns.runs:RunsCampaign",
    "hostile": "tests.campaigns.hostile:HostileCampaign",
    "cli": "tests.campaigns.cli:CliCampaign",
    "data": "tests.campaigns.data:DataCampaign",
    "audio": "tests.campaigns.audio:AudioCampaign",
    "numerics": "tests.campaigns.numerics:NumericsCampaign",
    "same-answer": "tests.campaigns.same_answer:SameAnswerCampaign",
}


def build_campaign(name: str) -> Campaign[Any]:
    """The campaign of this name; its modules are imported only now."""
    module, _, attribute = CAMPAIGNS[name].partition(":")
    campaign: Campaign[Any] = getattr(importlib.import_module(module), attribute)()
    assert campaign.name == name
    return campaign
