"""What the engine needs from the outside, as narrow Protocols; adapters implement them.

``Store`` and ``Claims`` are the legacy side, ``Leases``, ``Batches`` and ``Runs`` the ledger,
``Link``, ``Staging`` and ``Destinations`` the broker, ``SatelliteLink``, ``Routes``, ``Intake``
and ``Dispatching`` the legacy dispatcher; one module each. Every method's docstring
is its contract:
what is true when it returns, and what is true when it raises.

All datetimes are aware and in UTC. Adapters translate their driver's errors into
``migrator.errors``; a ``…Unavailable`` always means that nothing half-done was left behind in
that adapter, or that the docstring says what was.
"""

from migrator.ports.broker import (
    Destinations,
    Held,
    Link,
    Outgoing,
    Settled,
    Staging,
    Unreachable,
)
from migrator.ports.ledger import (
    Batches,
    Leases,
    Runs,
)
from migrator.ports.preflight import (
    BrokerFacts,
    BrokerServer,
    DelayEntities,
    HandedOver,
    HandOvers,
    LedgerFacts,
    NotChecked,
    Policy,
    QueueProbe,
    Room,
)
from migrator.ports.satellites import (
    Answers,
    Applied,
    ClearSaga,
    Delivery,
    DispatchClaims,
    Dispatching,
    GivesBack,
    HeldBooks,
    HeldDestination,
    Intake,
    Letter,
    NewTimeout,
    Route,
    Routes,
    SatelliteLink,
)
from migrator.ports.store import (
    Claim,
    ClaimRequest,
    Claims,
    Cursor,
    Store,
    StoreRemark,
    SurveyedRow,
)
from migrator.ports.tracing import (
    NoTracer,
    Passage,
    Tracer,
)
from migrator.ports.work import (
    Background,
    Batch,
    Clock,
    FaultPoint,
    Lease,
    Pending,
    StoreEndpoint,
    T,
)

__all__ = [
    "Answers",
    "Applied",
    "Background",
    "Batch",
    "Batches",
    "BrokerFacts",
    "BrokerServer",
    "Claim",
    "ClaimRequest",
    "Claims",
    "ClearSaga",
    "Clock",
    "Cursor",
    "DelayEntities",
    "Delivery",
    "Destinations",
    "DispatchClaims",
    "Dispatching",
    "FaultPoint",
    "GivesBack",
    "HandOvers",
    "HandedOver",
    "Held",
    "HeldBooks",
    "HeldDestination",
    "Intake",
    "Lease",
    "Leases",
    "LedgerFacts",
    "Letter",
    "Link",
    "NewTimeout",
    "NoTracer",
    "NotChecked",
    "Outgoing",
    "Passage",
    "Pending",
    "Policy",
    "QueueProbe",
    "Room",
    "Route",
    "Routes",
    "Runs",
    "SatelliteLink",
    "Settled",
    "Staging",
    "Store",
    "StoreEndpoint",
    "StoreRemark",
    "SurveyedRow",
    "T",
    "Tracer",
    "Unreachable",
]
