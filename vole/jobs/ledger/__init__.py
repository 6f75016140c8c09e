"""Every change of the queue. The only writer of its tables."""
