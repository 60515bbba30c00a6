"""Campaigns: thousands of cases that try to break headway, each in a process with limits.

A campaign is one file here and one line in `CAMPAIGNS`. `python -m tools.campaigns NAME --seed N --minutes M` runs it,
`python -m tools.campaigns report` writes the table of docs/reliability.md from the stored records. `faults.py` lists
products that are broken on purpose, and the campaign that must notice each.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tools.campaigns.campaign import Campaign

CAMPAIGNS = {
    "kills": "tools.campaigns.kills:KillsCampaign",  # first: it begins without threads
    "recipes": "tools.campaigns.recipes:RecipesCampaign",
    "runs": "tools.campaigns.runs:RunsCampaign",
    "hostile": "tools.campaigns.hostile:HostileCampaign",
    "cli": "tools.campaigns.cli:CliCampaign",
    "data": "tools.campaigns.data:DataCampaign",
    "audio": "tools.campaigns.audio:AudioCampaign",
    "marian": "tools.campaigns.marian:MarianCampaign",
    "markup": "tools.campaigns.markup:MarkupCampaign",
    "documents": "tools.campaigns.documents:DocumentsCampaign",
    "numerics": "tools.campaigns.numerics:NumericsCampaign",
    "same-answer": "tools.campaigns.same_answer:SameAnswerCampaign",
}


def build_campaign(name: str) -> "Campaign[Any]":
    """The campaign of this name; its modules are imported only now."""
    module, _, attribute = CAMPAIGNS[name].partition(":")
    campaign: Campaign[Any] = getattr(importlib.import_module(module), attribute)()
    assert campaign.name == name
    return campaign
