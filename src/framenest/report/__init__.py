"""Reports and contact sheets of rankings."""
