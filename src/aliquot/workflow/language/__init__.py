"""The States Language: the table of fields, the checker, and the compiled records that the interpreter runs."""

from aliquot.workflow.language.checked import checked_machine
from aliquot.workflow.language.reader import read_definition
from aliquot.workflow.language.records import Complaint, Machine, State

__all__ = ["Complaint", "Machine", "State", "checked_machine", "read_definition"]
