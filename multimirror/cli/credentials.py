"""Credentials of worker clusters: the kubeconfig that is stored for one, and when what is in it ends. Pure."""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import yaml
from cryptography import x509

from multimirror.kube import Connection
from multimirror.kube.errors import ConfigError
from multimirror.kube.kubeconfig import Access, parse_server, parse_strict
from multimirror.workers import addresses
from multimirror.workers.tokens import JOINED_BY_ANNOTATION


def self_contained(access: Access, token: str, *, name: str, server: str | None = None) -> dict[str, Any]:
    """A kubeconfig of the account with that token: only what its reader needs. Raises ConfigError."""
    if access.insecure:
        problem = "TLS verification is switched off; put the cluster's CA in certificate-authority-data"
        raise ConfigError(problem, field="insecure-skip-tls-verify")
    if access.proxy_url is not None and server is None:
        problem = "the dispatcher uses no proxies; name the address at which it reaches the cluster itself (--server)"
        raise ConfigError(problem, field="proxy-url")
    cluster: dict[str, Any] = {"server": server or access.server}
    if access.ca is not None:
        cluster["certificate-authority-data"] = base64.b64encode(access.ca).decode()
    if access.tls_server_name is not None:
        cluster["tls-server-name"] = access.tls_server_name
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": "multimirror", "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": "multimirror"}}],
        "current-context": name,
    }
    parse_strict(config)  # what the dispatcher would refuse is refused here, where somebody sees it
    return config


def trial_connection(access: Access, token: str, *, name: str, server: str | None = None) -> Connection:
    """The account with that token, by the address (and the proxy) that the administrator uses. Raises ConfigError.

    `server`: the dispatcher's, by which it is tried where the administrator's is no https:// (`kubectl proxy`)."""
    own = access.server.startswith("https://")
    config = self_contained(replace(access, proxy_url=None), token, name=name, server=None if own else server)
    return replace(Connection.strict(config, name=name), proxy=access.proxy_url)


def secret_of(name: str, kubeconfig: Mapping[str, Any], key: str, *, joined_by: Access | None = None) -> dict[str, Any]:
    """The Secret that holds it. `joined_by`: how the worker was reached when it was joined."""
    text = yaml.safe_dump(dict(kubeconfig), sort_keys=False)
    metadata: dict[str, Any] = {"name": name, "labels": {"app.kubernetes.io/part-of": "multimirror"}}
    if joined_by is not None and joined_by.proxy_url is None:  # which others need not have, and may hold a password
        metadata["annotations"] = {JOINED_BY_ANNOTATION: joined_by.server}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": "Opaque",
        "data": {key: base64.b64encode(text.encode()).decode()},
    }


def kubeconfig_in(secret: Mapping[str, Any], key: str) -> bytes | None:
    """What is under a Secret's key; None if there is nothing, or nothing readable."""
    value = (secret.get("data") or {}).get(key)
    try:
        return None if value is None else base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return None


def joined_by(secret: Mapping[str, Any], access: Access) -> str | None:
    """The address beside the stored one; None: none that may be tried.

    Only a CA of the cluster's own shows that whoever answers there is that cluster.
    """
    if access.ca is None:
        return None
    try:
        server = parse_server(addresses.joined_by(secret), JOINED_BY_ANNOTATION)
    except ConfigError:
        return None
    return server if server.startswith("https://") else None


def expiry(access: Access) -> datetime | None:
    """When the first of its credentials ends; None: never, or nobody can tell."""
    found = [_token_ends(access.token), _certificate_ends(access.client_certificate)]
    return min((each for each in found if each is not None), default=None)


def _token_ends(token: str | None) -> datetime | None:
    try:
        body = (token or "").split(".")[1]
        expires = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))["exp"]
        return datetime.fromtimestamp(float(expires), UTC)
    except (IndexError, KeyError, TypeError, ValueError, OverflowError):
        return None  # an opaque token, or one without an end


def _certificate_ends(certificate: bytes | None) -> datetime | None:
    if certificate is None:
        return None
    try:
        return x509.load_pem_x509_certificate(certificate).not_valid_after_utc
    except ValueError:
        return None
