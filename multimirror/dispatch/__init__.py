"""Which Job goes next, and where; and the dispatcher that carries it all out.

Pure: `sizes`, `ledger`, `placing`, `planning`. The shell: `dispatcher` and what it stands on.
"""

from multimirror.dispatch.dispatcher import COMPONENT, Dispatcher
from multimirror.dispatch.options import DispatcherOptions
from multimirror.dispatch.placing import Explanation, Verdict

__all__ = ["COMPONENT", "Dispatcher", "DispatcherOptions", "Explanation", "Verdict"]
