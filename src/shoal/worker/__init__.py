"""What happens beside an env: requests, the host that answers them, autoreset, infos, failures."""

from shoal.worker.autoreset import Autoreset
from shoal.worker.driver import Description, Driver, DriverFactory
from shoal.worker.failures import Failure
from shoal.worker.host import EnvHost
from shoal.worker.messages import Attach, Build, Call, Close, Reply, Request, Reset, ShareInfos, Step

__all__ = [
    "Attach",
    "Autoreset",
    "Build",
    "Call",
    "Close",
    "Description",
    "Driver",
    "DriverFactory",
    "EnvHost",
    "Failure",
    "Reply",
    "Request",
    "Reset",
    "ShareInfos",
    "Step",
]
