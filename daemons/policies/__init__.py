"""Policies: pure decisions, one folder per role, found by entry point. Policies of one role never import another's."""
