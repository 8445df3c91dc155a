"""Reports, figures and contact sheets of rankings."""
