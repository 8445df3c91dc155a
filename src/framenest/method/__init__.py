"""MEC, the paper's section 3: index → discovery → greedy ranking → prefix."""
