"""Options of TubeMQ's Java and C++ clients that have another name here, or none.

An error about an unknown option ends with the sentence of this table, after "use".
"""

from collections.abc import Mapping

_MASTERS = "the URL, the first argument: tubemq://master:8715, or several: tubemq://one:8715,two:8715"
_CREDENTIALS = "username= and password="
_TLS = "a URL that begins with tubemq+ssl://, and tls_ca=, tls_cert= and tls_key="
_STORES = "PEM files for tls_ca=, tls_cert= and tls_key=, in place of Java's key stores"
_CHOSEN = "nothing in its place: the system chooses the local address"
_GROUP = "subscription=, the second argument"

RENAMED: Mapping[str, Mapping[str, str]] = {
    "client": {
        "masterAddr": _MASTERS,
        "masterAddrInfo": _MASTERS,
        "masterAddress": _MASTERS,
        "masterHostAndPort": _MASTERS,
        "masterInfo": _MASTERS,
        "masterServers": _MASTERS,
        "localHostIP": _CHOSEN,
        "rpcTimeout": "request_timeout=, in seconds",
        "rpcTimeoutMs": "request_timeout=, in seconds",
        "rpcReadTimeoutMs": "request_timeout=, in seconds",
        "heartbeatPeriodMs": "heartbeat_interval=, in seconds",
        "heartbeatPeriodAfterFail": "max_backoff=, in seconds",
        "regFailWaitPeriodMs": "max_backoff=, in seconds",
        "maxRegisterRetryTimes": "connect_timeout=, or retry_first=",
        "rpcConnProcessorCnt": "threads=",
        "usrName": "username=",
        "usrPassWord": "password=",
        "authenticInfo": _CREDENTIALS,
        "tlsEnableInfo": _TLS,
        "tlsConfig": _TLS,
        "trustStorePath": _STORES,
        "trustStorePassword": _STORES,
        "keyStorePath": _STORES,
        "keyStorePassword": _STORES,
    },
    "consumer": {
        "group": _GROUP,
        "groupName": _GROUP,
        "consumerGroup": _GROUP,
        "consumePosition": 'position="first", "latest", "max" or positions',
        "consumeModel": 'position="first", "latest", "max" or positions',
        "msgNotFoundWaitPeriodMs": "poll_interval=, in seconds",
        "filterConds": "filters=",
        "pushFetchThreadCnt": "listen() of the consumer, with concurrency",
        "pullConfirmInLocal": "ack() of the consumer",
    },
}
"""Scope -> option of another client -> what to use."""
