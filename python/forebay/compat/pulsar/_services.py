"""Descriptions of a service, and of clusters to choose from."""

from __future__ import annotations

from collections.abc import Callable

from ._authentication import Authentication
from ._checks import check_type, check_type_or_none


class ServiceInfo:
    """URL and credentials of a cluster.

    Args:
        service_url: its URL.
        authentication: the credentials.
        tls_trust_certs_file_path: path of the certificate authorities to trust.
    """

    def __init__(
        self,
        service_url: str,
        authentication: Authentication | None = None,
        tls_trust_certs_file_path: str | None = None,
    ) -> None:
        check_type(str, service_url, "service_url")
        check_type_or_none(Authentication, authentication, "authentication")
        check_type_or_none(str, tls_trust_certs_file_path, "tls_trust_certs_file_path")
        check_url(service_url)
        self._authentication = authentication
        self._url, self._tls_trust_certs_file_path = service_url, tls_trust_certs_file_path

    @property
    def service_url(self) -> str:
        """URL of the cluster."""
        return self._url

    @property
    def use_tls(self) -> bool:
        """Whether the URL is one of TLS."""
        return self._url.startswith(("pulsar+ssl:", "https:"))

    @property
    def tls_trust_certs_file_path(self) -> str | None:
        """Path of the certificate authorities to trust."""
        return self._tls_trust_certs_file_path

    def __repr__(self) -> str:
        return (
            f"ServiceInfo(service_url={self.service_url!r}, use_tls={self.use_tls!r}, "
            f"tls_trust_certs_file_path={self.tls_trust_certs_file_path!r})"
        )

    @classmethod
    def wrap(cls, service_info: ServiceInfo) -> ServiceInfo:
        """The description itself: there is no second class of them here."""
        return service_info


class ServiceInfoProvider:
    """Base of classes that tell a client which cluster to use."""

    def initial_service_info(self) -> ServiceInfo:
        """The first cluster."""
        raise NotImplementedError

    def initialize(self, on_service_info_update: Callable[[ServiceInfo], None]) -> None:
        """Starts telling of other clusters."""
        raise NotImplementedError

    def close(self) -> None:
        """Stops telling."""
        return


class AutoClusterFailover:
    """A cluster, and others to use when it fails.

    Args:
        primary: the cluster to prefer.
        secondary: the others, in order.
        check_interval_ms: milliseconds between two checks.
        failover_threshold: number of failed checks before another cluster is used.
        switch_back_threshold: number of successful checks before the first one is used again.

    Raises:
        ValueError: an argument of another type, no other cluster, or a number below 1.
    """

    def __init__(
        self,
        primary: ServiceInfo,
        secondary: list[ServiceInfo],
        check_interval_ms: int = 5000,
        failover_threshold: int = 1,
        switch_back_threshold: int = 1,
    ) -> None:
        numbers = {
            "check_interval_ms": check_interval_ms,
            "failover_threshold": failover_threshold,
            "switch_back_threshold": switch_back_threshold,
        }
        check_type(ServiceInfo, primary, "primary")
        check_type(list, secondary, "secondary")
        for name, number in numbers.items():
            check_type(int, number, name)
        if not secondary:
            raise ValueError("Argument secondary is expected to contain at least one ServiceInfo")
        for index, info in enumerate(secondary):
            check_type(ServiceInfo, info, f"secondary[{index}]")
        for name, number in numbers.items():
            if number <= 0:
                raise ValueError(f"Argument {name} is expected to be greater than 0")
        self.primary, self.secondary = primary, list(secondary)
        self.check_interval_ms = check_interval_ms
        self.failover_threshold = failover_threshold
        self.switch_back_threshold = switch_back_threshold

    def __repr__(self) -> str:
        return (
            f"AutoClusterFailover(primary={self.primary!r}, secondary={self.secondary!r}, "
            f"check_interval_ms={self.check_interval_ms!r}, "
            f"failover_threshold={self.failover_threshold!r}, "
            f"switch_back_threshold={self.switch_back_threshold!r})"
        )


def check_url(url: str) -> None:
    """Raises:
    ValueError: a URL without a scheme, or with one that Pulsar does not have.
    """
    scheme, separator, _ = url.partition("://")
    if not separator:
        raise ValueError(f"The scheme part is missing: {url}")
    if scheme not in ("pulsar", "pulsar+ssl", "http", "https"):
        raise ValueError(f"Invalid scheme: {scheme}")
