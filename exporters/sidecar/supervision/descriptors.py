"""The limit of open files, which the children inherit."""

import logging
import resource

MOST_DESCRIPTORS = 1_048_576
"""The number of open files that a service usually gets; some systems have no hard limit."""

logger = logging.getLogger("vllm_slo.supervisor")


def raise_limit() -> None:
    """Raise the soft limit to the hard limit: a low soft limit only protects programs that call select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= target:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    except (OSError, ValueError) as error:  # for example macOS, whose kernel has a lower limit than the hard limit
        logger.warning("the limit of open files remains %d: %s", soft, error)
