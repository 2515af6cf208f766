"""The benchmark `slo`: deadlines and budgets, against published methods and the offline optimum."""
