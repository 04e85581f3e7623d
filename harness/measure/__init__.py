"""Schedule, worker process, sampler, journal, counters."""
