"""Writing of shards: encoding of samples, atomic publication of complete tars, resumption."""
