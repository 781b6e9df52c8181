"""Work over whole datasets: check, statistics, reshard, import, export."""
