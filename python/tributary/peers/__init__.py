"""Collectives of other projects, which ``tributary lab bench`` runs over the same links as ours."""
