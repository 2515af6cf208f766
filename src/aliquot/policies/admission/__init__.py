"""The table of admission policies, which promise or refuse calls with a deadline or a cost limit."""

from aliquot.core.admission.interfaces import Admission
from aliquot.policies.admission.accept_all import AcceptAll
from aliquot.policies.admission.clockwork import Clockwork
from aliquot.policies.admission.learned import Learned
from aliquot.policies.admission.pareto_sampled import ParetoSampled
from aliquot.policies.admission.reservation import Reservation

ADMISSION: dict[str, type[Admission]] = {
    "accept_all": AcceptAll,
    "clockwork": Clockwork,
    "learned": Learned,
    "pareto_sampled": ParetoSampled,
    "reservation": Reservation,
}
