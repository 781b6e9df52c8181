"""Work over whole datasets: check, statistics, reshard, repair, export."""
