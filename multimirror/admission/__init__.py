"""What happens to a Job when it is created: one pure function, and a webhook that serves it.

    async with AdmissionServer(client, namespaces, queues, port=9443) as server:
        registration = Registration(service=Service("multimirror-system", "multimirror-admission"))
        async with Webhook(client, server, registration, secret=("multimirror-system", "multimirror-admission-ca")):
            ...

On clusters with MutatingAdmissionPolicy the manifests from `policies` do the same without a server (docs/admission.md).
"""

from multimirror.admission.deciding import Patch, Refusal, Verdict, decide
from multimirror.admission.policies import policies
from multimirror.admission.registration import PATH, Registration, Service
from multimirror.admission.server import AdmissionServer
from multimirror.admission.webhook import Webhook
from multimirror.kube.resources import NAMESPACES

__all__ = [
    "NAMESPACES",
    "PATH",
    "AdmissionServer",
    "Patch",
    "Refusal",
    "Registration",
    "Service",
    "Verdict",
    "Webhook",
    "decide",
    "policies",
]
