"""Writing shards: members checked and encoded, tars that appear only when whole, resumption."""
