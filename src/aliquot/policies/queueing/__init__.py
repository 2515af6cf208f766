"""The table of queueing policies, which choose the next flow and its device. A new policy is one file and one line."""

from aliquot.core.interfaces import Queueing
from aliquot.policies.queueing.affinity import Affinity
from aliquot.policies.queueing.balance import Balance
from aliquot.policies.queueing.batch import Batch
from aliquot.policies.queueing.eedf import Eedf
from aliquot.policies.queueing.exclusive import Exclusive
from aliquot.policies.queueing.fair_resident import FairResident
from aliquot.policies.queueing.fcfs import Fcfs
from aliquot.policies.queueing.mlfq import Mlfq
from aliquot.policies.queueing.mqfq_sticky import MqfqSticky
from aliquot.policies.queueing.round_robin import RoundRobin
from aliquot.policies.queueing.sjf import Sjf
from aliquot.policies.queueing.srtf import Srtf

QUEUEING: dict[str, type[Queueing]] = {
    "affinity": Affinity,
    "balance": Balance,
    "batch": Batch,
    "eedf": Eedf,
    "exclusive": Exclusive,
    "fair_resident": FairResident,
    "fcfs": Fcfs,
    "mlfq": Mlfq,
    "mqfq_sticky": MqfqSticky,
    "round_robin": RoundRobin,
    "sjf": Sjf,
    "srtf": Srtf,
}
