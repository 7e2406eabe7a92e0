"""Options of ``forebay broker``, those of the broker and of its log."""

from typing import Annotated, Literal

from forebay._core import parse
from forebay._core.broker_options import BrokerOptions
from forebay._core.options import Option, Table

from . import logs


class CommandOptions(BrokerOptions, total=False):
    """Options of the command."""

    log_format: Annotated[
        Literal["text", "json"], Option(parse.one_of(*logs.FORMATS), "text", "Format of the log on stderr.")
    ]
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Option(parse.one_of(*logs.LEVELS), "info", "Least urgency of what is in the log."),
    ]


OPTIONS = Table(CommandOptions, "forebay broker")
ENVIRONMENT = "FOREBAY_BROKER_"
"""The beginning of the environment variables that set them."""
