"""All dashboards, in the order in which they are offered."""

from dashboards.boards import slo_overview

BOARDS = (slo_overview.BOARD,)
