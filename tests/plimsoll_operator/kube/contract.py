"""What the operator relies on in an API server, as tests: of a real one, and of the one in memory.

A suite imports everything here and has a fixture `api`.  Each test uses objects of its own
namespace alone, and waits for what controllers do, never for a time.
"""

from tests.plimsoll_operator.kube.contract_patches import *  # noqa: F403
from tests.plimsoll_operator.kube.contract_reads import *  # noqa: F403
from tests.plimsoll_operator.kube.contract_server import ContractServer as ContractServer
from tests.plimsoll_operator.kube.contract_writes import *  # noqa: F403
