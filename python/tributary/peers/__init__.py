"""Collectives of other projects, which ``tributary bench`` runs over the same links as ours."""
