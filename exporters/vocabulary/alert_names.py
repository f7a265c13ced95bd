"""The name of every alert."""

from enum import StrEnum


class AlertName(StrEnum):
    """Every alert; each has a runbook of the same name."""

    BURN = "LLMErrorBudgetBurn"
    LOW_TRAFFIC = "LLMErrorBudgetLowTraffic"
    TENANT_BURN = "LLMTenantErrorBudgetBurn"
    OUTLIER = "LLMReplicaOutlier"
    CLIENT_ERRORS = "LLMClientErrorSurge"
    REJECTIONS = "LLMRejectionSurge"
    TRAFFIC_LOST = "LLMOfferedTrafficLost"
    BUSY_BUT_USELESS = "LLMBusyButUseless"
    QUEUE = "LLMQueueSaturated"
    KV_CACHE = "LLMKVCacheFull"
    PREFIX_CACHE = "LLMPrefixCacheCollapse"
    SIDECAR_DOWN = "LLMSidecarDown"
    ENGINE_DOWN = "LLMEngineDown"
    ENGINE_WEDGED = "LLMEngineWedged"
    ENGINE_RESTARTS = "LLMEngineRestarts"
    DROPPING = "LLMSidecarDroppingRecords"
    LOG_LINES = "LLMSidecarDroppingLogLines"
    LOST = "LLMSidecarLostRequests"
    RELOAD_FAILED = "LLMSidecarConfigReloadFailed"
    UNMETERED = "LLMSidecarUnmeteredRequests"
    CONNECTIONS = "LLMSidecarConnectionsNearLimit"
    SIDECAR_RESTARTS = "LLMSidecarRestarts"
    TASK_ERRORS = "LLMSidecarTaskErrors"
    FOLLOW_LAG = "LLMSidecarFollowLag"
    DROPPED_SPANS = "LLMSidecarDroppingSpans"
    KV_TRANSFERS = "LLMKVTransferFailures"
    CERTIFICATE = "LLMCertificateExpiry"
    SCRAPE_INTERVAL = "LLMScrapeIntervalMismatch"
    UNMEASURED = "LLMSLOUnmeasured"
    TARGETS_MISSING = "LLMTargetsMissing"
    WATCHDOG = "VLLMSLOWatchdog"  # kube-prometheus has a Watchdog of its own
