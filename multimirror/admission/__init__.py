"""What happens to a Job when it is created: one pure function, and a webhook with its own certificates.

    async with AdmissionServer(client, namespaces, queues, port=9443) as server:
        registration = Registration(service=Service("multimirror-system", "multimirror-admission"))
        async with Webhook(client, server, registration, secret=("multimirror-system", "multimirror-admission")):
            ...

On clusters with MutatingAdmissionPolicy the manifests from `policies` do the same without a server (docs/admission.md).
"""

from multimirror.admission.certificates import Schedule
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
    "Schedule",
    "Service",
    "Verdict",
    "Webhook",
    "decide",
    "policies",
]
