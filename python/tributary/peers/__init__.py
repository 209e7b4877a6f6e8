"""Other people's collectives, run by ``tributary bench`` over the same links as ours."""
