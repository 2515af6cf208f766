"""Admission: which calls with a deadline or a cost limit are promised, and the plan that keeps the promises."""
