"""The tar index: headers verified, members grouped, kept in a sidecar, mapped as a shard."""
